#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <set>
#include <string>

#include "csrc/exporter/metrics/family_builder.h"
#include "csrc/exporter/metrics/metric_catalogue.h"
#include "tests/support/system/text_file.h"

namespace headscope::exporter {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Replaces what lies between the two markers of `name`.
std::string with_section(std::string text, const std::string& name, const std::string& content) {
  const std::string begin = "<!-- " + name + ":begin -->\n";
  const size_t start = text.find(begin);
  const size_t end = text.find("<!-- " + name + ":end -->");
  if (start == std::string::npos || end == std::string::npos) return "no section " + name;
  return text.replace(start + begin.size(), end - start - begin.size(), content);
}

// HEADSCOPE_UPDATE_GOLDEN=1 writes the tables instead of comparing them.
TEST(Catalogue, DocsHoldItsTables) {
  const std::string path = HEADSCOPE_SOURCE_DIR "/docs/metrics.md";
  const std::string text = headscope::testing::read_text(path);
  const std::string wanted = with_section(with_section(text, "catalogue", catalogue_markdown()),
                                          "error-kinds", error_kinds_markdown());
  if (std::getenv("HEADSCOPE_UPDATE_GOLDEN") != nullptr) {
    headscope::testing::write_text(path, wanted);
  }
  EXPECT_EQ(wanted, headscope::testing::read_text(path))
      << "docs/metrics.md is out of date; run this test with HEADSCOPE_UPDATE_GOLDEN=1";
}

TEST(Catalogue, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const MetricSpec& spec : metric_catalogue()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
  }
}

TEST(Catalogue, OnlyCountersEndInTotal) {
  for (const MetricSpec& spec : metric_catalogue()) {
    EXPECT_EQ(spec.name.ends_with("_total"), spec.kind == MetricKind::kCounter) << spec.name;
  }
}

TEST(Catalogue, NamesAreSnakeCaseWithThePrefix) {
  for (const MetricSpec& spec : metric_catalogue()) {
    EXPECT_TRUE(std::regex_match(std::string(spec.name), std::regex("headscope(_[a-z0-9]+)+")))
        << spec.name;
  }
}

// The serialiser does not escape help: a newline in it would start a series of its own.
TEST(Catalogue, HelpIsOneLine) {
  for (const MetricSpec& spec : metric_catalogue()) {
    EXPECT_FALSE(spec.help.empty()) << spec.name;
    EXPECT_EQ(spec.help.find_first_of("\n\r\\"), std::string_view::npos) << spec.name;
  }
}

TEST(Catalogue, NoMetricHasAStepLabel) {
  for (const MetricSpec& spec : metric_catalogue()) {
    EXPECT_EQ(spec.labels.find("step"), std::string_view::npos) << spec.name;
  }
}

TEST(Catalogue, UnknownMetricIsAnError) {
  EXPECT_THAT([] { metric_index("headscope_head_charm"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("'headscope_head_charm'")));
}

TEST(Catalogue, WrongNumberOfLabelsIsAnError) {
  FamilyBuilder builder;
  EXPECT_THAT([&] { builder.add("headscope_step", {"7"}, 1); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("has 0 labels, got 1")));
}

}  // namespace
}  // namespace headscope::exporter
