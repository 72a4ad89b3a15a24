#include "headscope/patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

namespace headscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int64_t> targets(const std::string& name, const std::vector<int64_t>& tokens,
                             int64_t query) {
  for (const auto& pattern : standard_patterns())
    if (pattern.name == name) return pattern.targets(tokens, query);
  throw std::invalid_argument(name);
}

TEST(StandardPatterns, HaveTheProtocolsTargetsOnThePlantedProbe) {
  std::vector<int64_t> row(256);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<int64_t>(1000 + i);
  row[94] = row[255] = 7;  // A at 94, B at 95
  EXPECT_THAT(targets("induction", row, 255), ElementsAre(95));
  EXPECT_THAT(targets("duplicate-token", row, 255), ElementsAre(94));
  EXPECT_THAT(targets("previous-token", row, 255), ElementsAre(254));
  EXPECT_THAT(targets("first-token", row, 255), ElementsAre(0));
  EXPECT_THAT(targets("self", row, 255), ElementsAre(255));
  EXPECT_THAT(targets("local", row, 255), ElementsAre(250, 251, 252, 253));
}

TEST(StandardPatterns, CountEveryEarlierOccurrence) {
  const std::vector<int64_t> row = {5, 6, 5, 7, 5};
  EXPECT_THAT(targets("induction", row, 4), ElementsAre(1, 3));
  EXPECT_THAT(targets("duplicate-token", row, 4), ElementsAre(0, 2));
}

TEST(StandardPatterns, NeverTakeTheQueryForAnInductionTarget) {
  EXPECT_THAT(targets("induction", {5, 5}, 1), IsEmpty());
  EXPECT_THAT(targets("duplicate-token", {5, 5}, 1), ElementsAre(0));
}

TEST(StandardPatterns, HoldAtTheStartOfARow) {
  const std::vector<int64_t> row = {5, 6, 7};
  EXPECT_THAT(targets("previous-token", row, 0), IsEmpty());
  EXPECT_THAT(targets("local", row, 1), IsEmpty());
  EXPECT_THAT(targets("local", row, 2), ElementsAre(0));
  EXPECT_THAT(targets("induction", row, 0), IsEmpty());
}

TEST(StandardPatterns, NameTheirThresholdsAndMetrics) {
  std::map<std::string, std::pair<double, std::string>> want = {
      {"induction", {50, "repeated_loss"}},
      {"previous-token", {100, "repeated_loss"}},
      {"duplicate-token", {30, "repeated_loss"}},
      {"first-token", {30, "none"}},
      {"self", {30, "none"}},
      {"local", {30, "none"}}};
  for (const auto& pattern : standard_patterns())
    EXPECT_EQ(want.at(pattern.name),
              std::make_pair(pattern.formed_at_256, std::string(to_string(pattern.metric))));
}

std::string refusal(std::vector<Pattern> patterns) {
  try {
    validate_patterns(patterns);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(ValidatePatterns, NamesWhatIsWrong) {
  const auto good = standard_patterns()[0];
  auto bad = good;
  EXPECT_EQ(refusal({good}), "");
  EXPECT_THAT(refusal({good, good}), HasSubstr("'induction' is given twice"));
  bad.name = "In duction";
  EXPECT_THAT(refusal({bad}), HasSubstr("'In duction'"));
  bad = good;
  bad.targets = nullptr;
  EXPECT_THAT(refusal({bad}), HasSubstr("no target function"));
  bad = good;
  bad.formed_at_256 = 0;
  EXPECT_THAT(refusal({bad}), HasSubstr("formed_at_256"));
}

}  // namespace
}  // namespace headscope
