#include "csrc/monitor/analysis/attention_readings.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/monitor/analysis/host_rows.h"

namespace headscope {
namespace {

// The reference's floor under a selectivity's denominator.
constexpr double kControlFloor = 1e-8;

/// Sums over one layer's sampled rows for one head.
struct RowSums {
  double entropy = 0, first_mass = 0, max_logit = -std::numeric_limits<double>::infinity();
  int64_t rows = 0;
  bool finite = true;
};

/// Adds a row; false: unused, fully masked or not finite.
bool add_row(const HostRows::Row& row, RowSums& sums) {
  if (std::isnan(row.log_sum_exp())) {
    sums.finite = false;
    return false;
  }
  if (std::isinf(row.log_sum_exp())) return false;  // every key masked: the row says nothing
  sums.entropy += static_cast<double>(row.entropy());
  sums.first_mass += static_cast<double>(row.first_mass());
  sums.max_logit = std::max(sums.max_logit, static_cast<double>(row.max_logit()));
  ++sums.rows;
  return true;
}

void finish_rows(const RowSums& sums, HeadReading& reading) {
  if (!sums.finite) {
    reading.finite = false;
    for (auto& pattern : reading.patterns) pattern = PatternReading{};
    return;
  }
  if (sums.rows == 0) return;
  const double n = static_cast<double>(sums.rows);
  reading.entropy = sums.entropy / n;
  reading.sink_mass = sums.first_mass / n;
  reading.max_logit = sums.max_logit;
}

/// Sums of one pattern over rows for one head.
struct PatternSums {
  double mass = 0, margin = 0, lag_mass = 0, key_mass = 0;
  double target_density = 0, control_density = 0;  // attention per key, a row's mean
  int64_t targets = 0, rows = 0, hidden_rows = 0, margin_rows = 0, keys = 0;

  /// A target that no key can be compared with (all masked) leaves the margin out, not the mass.
  void add_margin(float target_score, float reference_score) {
    const double difference =
        static_cast<double>(target_score) - static_cast<double>(reference_score);
    if (!std::isfinite(difference)) return;
    margin += difference;
    ++margin_rows;
  }
  /// A group of targets and one of controls of a sampled row; nothing when either is empty.
  void add_matched(const HostRows::Row& row, int64_t target_group, int64_t control_group,
                   int32_t target_keys, int32_t control_keys) {
    if (target_keys == 0 || control_keys == 0) return;
    const double own_control_mass = static_cast<double>(row.mass(control_group));
    const double own_mass = static_cast<double>(row.mass(target_group));
    mass += own_mass;
    lag_mass += own_control_mass * target_keys / control_keys;
    target_density += own_mass / target_keys;
    control_density += own_control_mass / control_keys;
    ++rows;
    add_margin(row.score(target_group), row.score(control_group));
  }
  double mean_margin() const {
    return margin_rows > 0 ? margin / static_cast<double>(margin_rows) : kNaN;
  }
};

/// Attention of a probe row on all keys: 1 but for a sink's share.
double key_mass(const LayerCapture& layer, int64_t h, const HostRows::Row& row) {
  if (!layer.sinks.defined()) return 1.0;
  return 1.0 -
         std::exp(layer.sinks.const_data_ptr<double>()[h] - static_cast<double>(row.log_sum_exp()));
}

/// Attention per control key of a query.
double control_density(const LayerCapture& layer, const ProbePlan& plan, const HostRows::Row& row,
                       int64_t h, const SeenKeys& seen, int64_t n, int64_t r, int64_t targets,
                       double mass) {
  const auto keys = static_cast<double>(seen.in_row(n, r));
  switch (plan.controls) {
    case ControlPositions::kAnalytic:
      return keys > 1 ? 1.0 / (keys - 1) : kNaN;
    case ControlPositions::kMeasuredAll: {
      const double others = keys - static_cast<double>(targets);
      return others > 0 ? (key_mass(layer, h, row) - mass) / others : kNaN;
    }
    default: {
      const int64_t group = plan.queries.ordinary_group();
      return static_cast<double>(row.mass(group)) / static_cast<double>(seen.in_group(n, group, r));
    }
  }
}

double selectivity_of(double mass_per_target, double mass_per_control) {
  return mass_per_target / std::max(mass_per_control, kControlFloor);
}

/// Readings of the patterns that are defined by a position, at the sampled queries.
void read_queries(const LayerCapture& layer, const ProbePlan& plan, std::vector<RowSums>& row_sums,
                  std::span<HeadReading> readings) {
  const QueryPlan& queries = plan.queries;
  const size_t patterns = queries.patterns.size();
  std::vector<PatternSums> sums(readings.size() * patterns);
  for (size_t c = 0; c < layer.query_attention.size(); ++c) {
    const HostRows rows(layer.query_attention[c]);
    const SeenKeys seen = SeenKeys::at_queries(layer, queries, c);
    for (int64_t n = 0; n < rows.batch(); ++n) {
      for (int64_t r = 0; r < rows.sampled(); ++r) {
        const int64_t ordinary = seen.in_group(n, queries.ordinary_group(), r);
        for (int64_t h = 0; h < rows.heads(); ++h) {
          const HostRows::Row row = rows.row(n, h, r);
          if (std::isnan(row.log_sum_exp())) row_sums[static_cast<size_t>(h)].finite = false;
          if (!std::isfinite(row.log_sum_exp())) continue;
          for (size_t i = 0; i < patterns; ++i) {
            PatternSums& own = sums[static_cast<size_t>(h) * patterns + i];
            const int64_t targets = seen.asked(n, queries.target_group(i), r);
            if (targets == 0) continue;
            if (seen.in_group(n, queries.target_group(i), r) < targets) {
              ++own.hidden_rows;
              continue;
            }
            const auto mass = static_cast<double>(row.mass(queries.target_group(i)));
            own.mass += mass;
            own.target_density += mass / static_cast<double>(targets);
            own.control_density += control_density(layer, plan, row, h, seen, n, r, targets, mass);
            ++own.rows;
            own.add_margin(row.score(queries.target_group(i)),
                           among_seen(row.score(queries.ordinary_group()),
                                      seen.asked(n, queries.ordinary_group(), r), ordinary));
          }
        }
      }
    }
  }
  for (size_t h = 0; h < readings.size(); ++h) {
    for (size_t i = 0; i < patterns; ++i) {
      const PatternSums& own = sums[h * patterns + i];
      if (own.rows == 0 || own.rows < own.hidden_rows) continue;
      PatternReading& reading = readings[h].patterns[queries.patterns[i]];
      const double n = static_cast<double>(own.rows);
      reading.mass = own.mass / n;
      reading.control_mass = own.control_density / n;
      reading.selectivity = selectivity_of(own.target_density / n, reading.control_mass);
      reading.margin = own.mean_margin();
    }
  }
}

}  // namespace

void read_train_attention(const LayerCapture& layer, const std::vector<TrainPlan>& plans,
                          std::span<const Pattern> patterns, std::span<HeadReading> readings) {
  if (layer.attention.empty() || !layer.attention_trusted) return;
  const size_t pattern_count = patterns.size();
  std::vector<RowSums> row_sums(readings.size());
  std::vector<PatternSums> sums(readings.size() * pattern_count);
  for (size_t micro = 0; micro < layer.attention.size(); ++micro) {
    const HostRows rows(layer.attention[micro]);
    const TrainPlan& plan = plans[layer.plan_of[micro]];
    const int64_t* query = plan.rows.const_data_ptr<int64_t>();
    for (int64_t b = 0; b < rows.batch(); ++b) {
      for (int64_t h = 0; h < rows.heads(); ++h) {
        for (int64_t r = 0; r < rows.sampled(); ++r) {
          const int64_t asked = b * rows.sampled() + r;
          if (query[asked] < 0) continue;  // padding
          const HostRows::Row row = rows.row(b, h, r);
          if (!add_row(row, row_sums[static_cast<size_t>(h)])) continue;
          for (size_t p = 0; p < pattern_count; ++p) {
            const size_t entry = static_cast<size_t>(asked) * pattern_count + p;
            sums[static_cast<size_t>(h) * pattern_count + p].add_matched(
                row, static_cast<int64_t>(p), plan.control_group[p], plan.target_count[entry],
                plan.control_count[entry]);
          }
        }
      }
    }
  }
  for (size_t h = 0; h < readings.size(); ++h) {
    for (size_t p = 0; p < pattern_count; ++p) {
      const PatternSums& own = sums[h * pattern_count + p];
      if (own.rows == 0) continue;
      PatternReading& reading = readings[h].patterns[p];
      const double n = static_cast<double>(own.rows);
      // Content patterns state the excess over lag-matched keys: recency and bigrams weigh on both
      // alike.
      reading.mass =
          (own.mass - (patterns[p].null == NullKind::kPermuteTargets ? own.lag_mass : 0.0)) / n;
      reading.control_mass = own.control_density / n;
      reading.selectivity = selectivity_of(own.target_density / n, reading.control_mass);
      reading.margin = own.mean_margin();
    }
    finish_rows(row_sums[h], readings[h]);
  }
}

void read_probe_attention(const LayerCapture& layer, const ProbePlan& plan,
                          std::span<HeadReading> readings) {
  if (layer.attention.empty() || !layer.attention_trusted) return;
  const size_t pattern_count = plan.patterns.size();
  std::vector<RowSums> row_sums(readings.size());
  std::vector<PatternSums> sums(readings.size() * pattern_count);
  std::vector<double> control(readings.size(), 0.0);
  std::vector<int64_t> control_positions(readings.size(), 0);
  size_t example = 0;
  for (size_t c = 0; c < layer.attention.size(); ++c) {
    const HostRows rows(layer.attention[c]);
    const SeenKeys seen = SeenKeys::at_last(layer, plan, c);
    for (int64_t n = 0; n < rows.batch(); ++n, ++example) {
      const int64_t keys = seen.in_row(n);
      for (int64_t h = 0; h < rows.heads(); ++h) {
        const HostRows::Row row = rows.row(n, h, 0);
        if (!add_row(row, row_sums[static_cast<size_t>(h)])) continue;
        control[static_cast<size_t>(h)] += static_cast<double>(row.mass(plan.control_group()));
        control_positions[static_cast<size_t>(h)] += seen.in_group(n, plan.control_group());
        for (size_t p = 0; p < pattern_count; ++p) {
          const int64_t targets = plan.target_count[p][example];
          if (targets == 0 || plan.place_in_queries(p) >= 0) continue;
          PatternSums& own = sums[static_cast<size_t>(h) * pattern_count + p];
          const int64_t target = plan.target_group(p), reference = plan.reference_group(p);
          if (seen.in_group(n, target) < targets) {
            ++own.hidden_rows;
            continue;
          }
          own.mass += static_cast<double>(row.mass(target));
          own.targets += targets;
          own.keys += keys;
          own.key_mass += key_mass(layer, h, row);
          ++own.rows;
          own.add_margin(row.score(target),
                         among_seen(row.score(reference), seen.asked(n, reference),
                                    seen.in_group(n, reference)));
        }
      }
    }
  }
  for (size_t h = 0; h < readings.size(); ++h) {
    for (size_t p = 0; p < pattern_count; ++p) {
      const PatternSums& own = sums[h * pattern_count + p];
      // Mostly hidden from this layer: not measurable, rather than a figure of the few left.
      if (own.rows == 0 || own.rows < own.hidden_rows) continue;
      PatternReading& reading = readings[h].patterns[p];
      const double n = static_cast<double>(own.rows), targets = static_cast<double>(own.targets);
      const double keys = static_cast<double>(own.keys) / n;
      reading.mass = own.mass / n;
      switch (plan.controls) {
        case ControlPositions::kAnalytic:
          reading.control_mass = keys > 1 ? 1.0 / (keys - 1) : kNaN;
          break;
        case ControlPositions::kMeasuredAll:
          reading.control_mass =
              keys > targets / n ? (own.key_mass / n - reading.mass) / (keys - targets / n) : kNaN;
          break;
        default:
          reading.control_mass = control[h] / static_cast<double>(control_positions[h]);
      }
      reading.selectivity = selectivity_of(own.mass / targets, reading.control_mass);
      reading.margin = own.mean_margin();
    }
  }
  read_queries(layer, plan, row_sums, readings);
  for (size_t h = 0; h < readings.size(); ++h) finish_rows(row_sums[h], readings[h]);
  if (!layer.repeat) return;
  const at::Tensor matched = layer.repeat->mass.to(at::kCPU, at::kDouble).mean({0, 2, 3});
  for (size_t h = 0; h < readings.size(); ++h) {
    readings[h].prefix_matching = matched[static_cast<int64_t>(h)].item<double>();
  }
}

}  // namespace headscope
