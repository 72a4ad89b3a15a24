#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "headscope/built_in_sinks.h"
#include "plugin/cli/commands.h"

namespace headscope::cli {
namespace {

[[noreturn]] void fail(const std::string& file) {
  throw std::runtime_error(file + ": cannot be written: " + std::strerror(errno));
}

/// Replaces `file` in one step: who has it open goes on seeing the old one whole.
void write_file(const std::string& file, const std::string& text) {
  const std::string partial = file + ".partial";
  std::remove(partial.c_str());  // of a report that was killed
  std::FILE* stream = std::fopen(partial.c_str(), "wbx");
  if (stream == nullptr) fail(file);
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  if (std::fclose(stream) != 0 || !written || std::rename(partial.c_str(), file.c_str()) != 0) {
    const int cause = errno;
    std::remove(partial.c_str());
    errno = cause;
    fail(file);
  }
}

void log_line(LogLevel level, const std::string& line) {
  std::fprintf(stderr, "headscope: %s%s\n", level == LogLevel::kWarning ? "warning: " : "",
               line.c_str());
}

}  // namespace

std::string report(const ReportArguments& arguments) {
  if (arguments.json) return report_json(arguments.run_dir) + "\n";
  const std::string page = report_html(arguments.run_dir);
  if (arguments.html.empty()) return page;
  write_file(arguments.html, page);
  return {};
}

std::string serve(const ServeArguments& arguments) {
  // Blocked before any thread starts, so that all of them leave the signals to sigwait.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  ServerOptions options;
  options.run_dir = arguments.run_dir;
  options.host = arguments.host;
  options.port = arguments.port;
  options.host_names = arguments.host_names;
  options.log = log_line;
  const auto server = serve_history(options);
  std::printf("%s/\n", server->url().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
  server->close();
  return {};
}

}  // namespace headscope::cli
