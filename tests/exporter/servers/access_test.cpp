#include "csrc/exporter/http/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>

#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/http_client.h"
#include "tests/support/needs.h"
#include "tests/support/system/temporary_directory.h"
#include "tests/support/system/text_file.h"

namespace headscope {
namespace {

using exporter::BasicAuth;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::port_of;
using testing::read_text;
using testing::TemporaryDirectory;
using ::testing::ThrowsMessage;
using testing::write_text;

/// What curl answers: the status code alone on the last line; empty when curl is refused.
std::string curl(const TemporaryDirectory& directory, const std::string& arguments) {
  const std::string output = directory.file("curl.out");
  const std::string command = "curl --silent --noproxy '*' --max-time 20 -w '\n%{http_code}' " +
                              arguments + " > " + output + " 2>&1";
  const int status = std::system(command.c_str());
  return status == 0 ? read_text(output) : "curl failed: " + std::to_string(status >> 8);
}

AccessOptions with_file(const std::string& user, const std::string& file) {
  AccessOptions options;
  options.user = user;
  options.password_file = file;
  return options;
}

AccessOptions with_variable(const std::string& user, const std::string& variable) {
  AccessOptions options;
  options.user = user;
  options.password_env = variable;
  return options;
}

AccessOptions with_certificate(const std::string& file) {
  AccessOptions options;
  options.certificate_file = file;
  return options;
}

/// Old versions of TLS are refused by the server or not at all: OpenSSL itself, in this process and
/// in those that it starts, is told to be weak. It reads that when it is first opened.
const int kWeakOpenssl =
    setenv("OPENSSL_CONF", HEADSCOPE_SOURCE_DIR "/tests/exporter/servers/weak_openssl.cnf", 1);

/// A server on a free port, and what it logs.
struct Started {
  std::mutex mutex;
  std::string log;
  std::shared_ptr<MetricsServer> server;

  explicit Started(const AccessOptions& access) {
    ServerOptions options;
    options.access = access;
    options.port = 0;
    options.threads = 4;
    options.log = [this](LogLevel, const std::string& line) {
      const std::lock_guard lock(mutex);
      log += line + "\n";
    };
    server = start_metrics_server(options);
  }
};

// RFC 7617, section 2 and 2.1.
TEST(BasicAuthentication, TakesTheHeaderOfTheStandard) {
  const TemporaryDirectory directory;
  write_text(directory.file("password"), "open sesame\nsecond line\n");
  const BasicAuth auth(with_file("Aladdin", directory.file("password")));
  EXPECT_TRUE(auth.allows("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
  for (const char* wrong :
       {"", "Basic", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZR==",
        "basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}) {
    EXPECT_FALSE(auth.allows(wrong)) << wrong;
  }
}

TEST(BasicAuthentication, EncodesEveryLength) {
  const TemporaryDirectory directory;
  const auto allows = [&](const std::string& password, const std::string& header) {
    write_text(directory.file("password"), password);
    return BasicAuth(with_file("u", directory.file("password"))).allows(header);
  };
  EXPECT_TRUE(allows("p", "Basic dTpw"));
  EXPECT_TRUE(allows("pw", "Basic dTpwdw=="));
  EXPECT_TRUE(allows("pwd", "Basic dTpwd2Q="));
  EXPECT_TRUE(allows("\xc3\xbc\xff", "Basic dTrDvP8="));
}

TEST(BasicAuthentication, IsOffWithoutAUser) { EXPECT_TRUE(BasicAuth({}).allows("")); }

TEST(BasicAuthentication, ErrorsNameTheSourceAndNeverThePassword) {
  const TemporaryDirectory directory;
  write_text(directory.file("empty"), "\nsecret\n");
  setenv("HEADSCOPE_TEST_PASSWORD", "secret", 1);
  const auto refusal = [](const AccessOptions& options) {
    return [options] { BasicAuth{options}; };
  };
  const auto names = [](const std::string& text) {
    return ThrowsMessage<std::runtime_error>(AllOf(HasSubstr(text), Not(HasSubstr("secret"))));
  };
  EXPECT_THAT(refusal(with_variable("u", "")), names("password_file or password_env"));
  EXPECT_THAT(refusal(with_file("u", directory.file("none"))), names("none"));
  EXPECT_THAT(refusal(with_file("u", directory.file("empty"))), names("empty"));
  EXPECT_THAT(refusal(with_variable("u", "HEADSCOPE_TEST_UNSET")), names("HEADSCOPE_TEST_UNSET"));
  EXPECT_THAT(refusal(with_variable("u:v", "HEADSCOPE_TEST_PASSWORD")), names("colon"));
  EXPECT_THAT(refusal(with_variable("", "HEADSCOPE_TEST_PASSWORD")), names("no user"));
}

TEST(Access, CurlNeedsThePassword) {
  HEADSCOPE_NEED_PROGRAM("curl");
  const TemporaryDirectory directory;
  setenv("HEADSCOPE_TEST_PASSWORD", "s\xc3\xa9same & co", 1);
  Started started(with_variable("scraper", "HEADSCOPE_TEST_PASSWORD"));
  const std::string url = started.server->url();
  EXPECT_THAT(curl(directory, url + "/metrics"),
              AllOf(HasSubstr("\n401"), Not(HasSubstr("headscope_"))));
  EXPECT_THAT(curl(directory, url + "/"), HasSubstr("\n401"));
  EXPECT_THAT(curl(directory, "-u 'scraper:wrong' " + url + "/metrics"), HasSubstr("\n401"));
  EXPECT_THAT(curl(directory, "-u 'scraper:s\xc3\xa9same & co' " + url + "/metrics"),
              AllOf(HasSubstr("headscope_build_info"), HasSubstr("\n200")));
  EXPECT_THAT(curl(directory, url + "/-/healthy"), HasSubstr("ok\n\n200"));
  EXPECT_THAT(testing::http(port_of(url), "/metrics").header("WWW-Authenticate"),
              HasSubstr("Basic realm=\"headscope\""));
  EXPECT_THAT(started.log, Not(HasSubstr("same")));
}

TEST(Access, CurlTrustsASelfSignedCertificateThatItWasGiven) {
  HEADSCOPE_NEED_PROGRAM("curl");
  HEADSCOPE_NEED_PROGRAM("openssl");
  const TemporaryDirectory directory;
  const std::string certificate = directory.file("certificate.pem");
  const std::string both = directory.file("both.pem");
  ASSERT_EQ(
      std::system(("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
                   "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -days 2 -keyout " +
                   directory.file("key.pem") + " -out " + certificate + " 2> /dev/null && cat " +
                   certificate + " " + directory.file("key.pem") + " > " + both)
                      .c_str()),
      0);
  Started started(with_certificate(both));
  const std::string url = started.server->url();
  EXPECT_THAT(url, HasSubstr("https://127.0.0.1:"));
  EXPECT_THAT(curl(directory, "--cacert " + certificate + " " + url + "/metrics"),
              AllOf(HasSubstr("headscope_build_info"), HasSubstr("\n200")));
  EXPECT_THAT(curl(directory, url + "/metrics"), HasSubstr("curl failed: 60"));  // not trusted
  const std::string old = "--tlsv1.0 --tls-max 1.1 --insecure ";
  EXPECT_THAT(curl(directory, old + url + "/metrics"),
              HasSubstr("curl failed: 35"));  // no handshake
  const std::string plain = "http://127.0.0.1:" + std::to_string(port_of(url)) + "/metrics";
  EXPECT_THAT(curl(directory, plain), Not(HasSubstr("headscope_build_info")));
  EXPECT_THAT(started.log, HasSubstr("https://"));
}

TEST(Access, ACertificateThatCannotBeUsedIsNamed) {
  const TemporaryDirectory directory;
  write_text(directory.file("broken.pem"), "not a certificate\n");
  for (const std::string name : {"missing.pem", "broken.pem"}) {
    EXPECT_THAT([&] { Started(with_certificate(directory.file(name))); },
                ThrowsMessage<std::runtime_error>(HasSubstr(name)));
  }
}

}  // namespace
}  // namespace headscope
