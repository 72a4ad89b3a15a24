#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "headscope/snapshot.h"

namespace headscope::testing {

/// Two doubles with the same bits; NaN equals the NaN of the same bits only, -0 is not 0.
inline void expect_same(double got, double want, const std::string& where) {
  EXPECT_EQ(std::bit_cast<uint64_t>(got), std::bit_cast<uint64_t>(want))
      << where << ": got " << got << ", want " << want;
}

template <typename T>
void expect_same(const T& got, const T& want, const std::string& where) requires requires {
  got == want;
}
{ EXPECT_EQ(got, want) << where; }

inline void expect_same(const std::vector<double>& got, const std::vector<double>& want,
                        const std::string& where) {
  ASSERT_EQ(got.size(), want.size()) << where;
  for (size_t i = 0; i < got.size(); ++i) {
    expect_same(got[i], want[i], where + "[" + std::to_string(i) + "]");
  }
}

inline void expect_same(const std::map<std::string, double>& got,
                        const std::map<std::string, double>& want, const std::string& where) {
  ASSERT_EQ(got.size(), want.size()) << where;
  for (const auto& [name, value] : want) {
    ASSERT_TRUE(got.contains(name)) << where << ": no " << name;
    expect_same(got.at(name), value, where + "." + name);
  }
}

#define HEADSCOPE_SAME(field) expect_same(got.field, want.field, where + "." #field)

inline void expect_same(const PatternReading& got, const PatternReading& want,
                        const std::string& where) {
  HEADSCOPE_SAME(selectivity);
  HEADSCOPE_SAME(mass);
  HEADSCOPE_SAME(margin);
  HEADSCOPE_SAME(control_mass);
  HEADSCOPE_SAME(margin_z);
  HEADSCOPE_SAME(mass_z);
}

inline void expect_same(const HeadReading& got, const HeadReading& want, const std::string& where) {
  HEADSCOPE_SAME(id.layer);
  HEADSCOPE_SAME(id.head);
  HEADSCOPE_SAME(participation_ratio);
  HEADSCOPE_SAME(participation_ratio_centred);
  HEADSCOPE_SAME(participation_ratio_quadratic);
  HEADSCOPE_SAME(participation_ratio_quadratic_centred);
  HEADSCOPE_SAME(null_participation_ratio);
  HEADSCOPE_SAME(pr_integral);
  HEADSCOPE_SAME(output_norm);
  HEADSCOPE_SAME(entropy);
  HEADSCOPE_SAME(max_logit);
  HEADSCOPE_SAME(sink_mass);
  HEADSCOPE_SAME(prefix_matching);
  HEADSCOPE_SAME(eigenvalues);
  HEADSCOPE_SAME(best_pattern);
  HEADSCOPE_SAME(samples);
  HEADSCOPE_SAME(finite);
  HEADSCOPE_SAME(specialising);
  ASSERT_EQ(got.patterns.size(), want.patterns.size()) << where;
  for (size_t i = 0; i < want.patterns.size(); ++i) HEADSCOPE_SAME(patterns[i]);
}

inline void expect_same(const CircuitReading& got, const CircuitReading& want,
                        const std::string& where) {
  HEADSCOPE_SAME(pattern);
  HEADSCOPE_SAME(state);
  HEADSCOPE_SAME(heads);
  HEADSCOPE_SAME(formed_threshold);
  HEADSCOPE_SAME(critical_margin_z);
  HEADSCOPE_SAME(best_selectivity);
  HEADSCOPE_SAME(emerging_step);
  HEADSCOPE_SAME(margin_step);
  HEADSCOPE_SAME(mass_step);
  HEADSCOPE_SAME(formed_step);
  HEADSCOPE_SAME(verified_step);
  HEADSCOPE_SAME(emerging_tokens);
  HEADSCOPE_SAME(formed_tokens);
  HEADSCOPE_SAME(verified_tokens);
}

inline void expect_same(const Event& got, const Event& want, const std::string& where) {
  HEADSCOPE_SAME(step);
  HEADSCOPE_SAME(tokens);
  HEADSCOPE_SAME(wall_time);
  HEADSCOPE_SAME(previous_probe_step);
  HEADSCOPE_SAME(kind);
  HEADSCOPE_SAME(pattern);
  HEADSCOPE_SAME(head_level);
  HEADSCOPE_SAME(heads);
  HEADSCOPE_SAME(figures);
  HEADSCOPE_SAME(rule);
}

inline void expect_same(const AblationReport& got, const AblationReport& want,
                        const std::string& where) {
  HEADSCOPE_SAME(pattern);
  HEADSCOPE_SAME(metric);
  HEADSCOPE_SAME(gate);
  HEADSCOPE_SAME(step);
  HEADSCOPE_SAME(heads);
  HEADSCOPE_SAME(baseline_loss);
  HEADSCOPE_SAME(ablated_loss);
  HEADSCOPE_SAME(effect);
  HEADSCOPE_SAME(control_effects);
  HEADSCOPE_SAME(control_sets);
  HEADSCOPE_SAME(single_head_effects);
  HEADSCOPE_SAME(control_mean);
  HEADSCOPE_SAME(difference_low);
  HEADSCOPE_SAME(difference_high);
  HEADSCOPE_SAME(upper_bound_effect);
  HEADSCOPE_SAME(attainable_p);
  HEADSCOPE_SAME(examples);
  HEADSCOPE_SAME(verdict);
  HEADSCOPE_SAME(reason);
}

inline void expect_same(const Health& got, const Health& want, const std::string& where) {
  HEADSCOPE_SAME(errors);
  HEADSCOPE_SAME(taps);
  HEADSCOPE_SAME(taps_missing);
  HEADSCOPE_SAME(taps_skipped);
  HEADSCOPE_SAME(snapshots_dropped);
  HEADSCOPE_SAME(nonfinite_readings);
  HEADSCOPE_SAME(probes);
  HEADSCOPE_SAME(measured_steps);
  HEADSCOPE_SAME(deferred);
  HEADSCOPE_SAME(budget_ratio);
  HEADSCOPE_SAME(budget_used_ratio);
  HEADSCOPE_SAME(tap_seconds);
  HEADSCOPE_SAME(probe_seconds);
  HEADSCOPE_SAME(ablation_seconds);
  HEADSCOPE_SAME(wait_seconds);
  HEADSCOPE_SAME(analysis_seconds);
}

/// Every field, bit for bit.
inline void expect_same(const Snapshot& got, const Snapshot& want,
                        const std::string& where = "snapshot") {
  HEADSCOPE_SAME(step);
  HEADSCOPE_SAME(tokens);
  HEADSCOPE_SAME(wall_time);
  HEADSCOPE_SAME(loss);
  HEADSCOPE_SAME(segment);
  HEADSCOPE_SAME(source);
  HEADSCOPE_SAME(context);
  HEADSCOPE_SAME(probe_interval);
  HEADSCOPE_SAME(dtype);
  HEADSCOPE_SAME(integral_axis);
  HEADSCOPE_SAME(controls);
  HEADSCOPE_SAME(patterns);
  HEADSCOPE_SAME(sink_any);
  HEADSCOPE_SAME(repeat_gap);
  HEADSCOPE_SAME(sink_class);
  HEADSCOPE_SAME(health);
  ASSERT_EQ(got.heads.size(), want.heads.size()) << where;
  for (size_t i = 0; i < want.heads.size(); ++i) HEADSCOPE_SAME(heads[i]);
  ASSERT_EQ(got.circuits.size(), want.circuits.size()) << where;
  for (size_t i = 0; i < want.circuits.size(); ++i) HEADSCOPE_SAME(circuits[i]);
  ASSERT_EQ(got.events.size(), want.events.size()) << where;
  for (size_t i = 0; i < want.events.size(); ++i) HEADSCOPE_SAME(events[i]);
  ASSERT_EQ(got.ablations.size(), want.ablations.size()) << where;
  for (size_t i = 0; i < want.ablations.size(); ++i) HEADSCOPE_SAME(ablations[i]);
}

#undef HEADSCOPE_SAME

}  // namespace headscope::testing
