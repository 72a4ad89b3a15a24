// The reader that the fuzzers trust: one case for every fault that it can find.

#include "tests/support/exporter/exposition.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/sample_snapshot.h"

namespace headscope::testing {
namespace {

std::string fault(const std::string& samples) {
  return Exposition::fault_of("# HELP a_b text\n# TYPE a_b gauge\n" + samples);
}

TEST(ExpositionReader, TakesWhatAScrapeAnswers) {
  const Snapshot snapshot = sample_snapshot();
  EXPECT_EQ(Exposition::fault_of(render_metrics(&snapshot, snapshot.health, {{"run", "x"}})), "");
  EXPECT_EQ(Exposition::fault_of(""), "");
  EXPECT_EQ(fault("a_b 1\na_b{c=\"\"} -2.5e-308\na_b{c=\"\\\\\\\"\\n\xC3\xA9\",d=\"}\"} +Inf\n"),
            "");
}

TEST(ExpositionReader, FindsEveryFault) {
  const std::pair<std::string, std::string> cases[] = {
      {"a_b 1", "the last line does not end"},
      {"\n", "an empty line"},
      {"a_b{c=\"\xFF\"} 1\n", "not UTF-8"},
      {"# EOF\n", "neither HELP nor TYPE"},
      {"# HELP 1a text\n", "a bad name"},
      {"# HELP a_b text\n", "a second HELP"},
      {"# TYPE a_b gauge\n", "a second TYPE"},
      {"# TYPE c text\n", "an unknown type"},
      {"a-b 1\n", "a bad name"},
      {"c 1\n", "outside its family"},
      {"a_b{} 1\n", "a label without value"},
      {"a_b{__c=\"d\"} 1\n", "a bad label name"},
      {"a_b{c=\"d\",c=\"e\"} 1\n", "a label name twice"},
      {"a_b{c=\"\\t\"} 1\n", "a bad escape"},
      {"a_b{c=\"d} 1\n", "a label value without end"},
      {"a_b{c=\"d\"e 1\n", "labels without end"},
      {"a_b{c=\"d\"}1\n", "no value"},
      {"a_b 1\na_b 2\n", "a second time"},
      {"a_b{c=\"d\",e=\"f\"} 1\na_b{e=\"f\",c=\"d\"} 1\n", "a second time"},
      {"a_b 1 2\n", "no number, or more than one"},
      {"a_b 0x1\n", "no number, or more than one"},
      {"a_b 1e\n", "no number"},
      {"a_b 1.797693134862316e+308\n", "beyond the range of a double"}};
  for (const auto& [samples, wanted] : cases) {
    EXPECT_EQ(fault(samples).substr(0, fault(samples).find(": ")), wanted) << samples;
  }
}

}  // namespace
}  // namespace headscope::testing
