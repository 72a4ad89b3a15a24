#include "csrc/monitor/analysis/null_tests.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "csrc/monitor/analysis/host_rows.h"

namespace headscope {
namespace {

/// Which table a pattern's null needs: column count and, per row, the group of each column and the
/// row's own column.
struct NullLayout {
  std::vector<size_t> rows;          // examples that enter
  std::vector<int64_t> set_columns;  // permuted patterns: candidate sets in use
  int64_t columns = 0;
  std::vector<int32_t> target;

  /// Of a row, in the plan.
  int64_t group(const ProbePlan& plan, size_t pattern, int64_t column) const {
    if (!set_columns.empty()) return plan.candidate_group(set_columns[static_cast<size_t>(column)]);
    return column == 0 ? plan.target_group(pattern) : plan.uniform_group(column - 1);
  }
};

NullLayout layout_of(const ProbePlan& plan, size_t p) {
  NullLayout layout;
  if (plan.patterns[p].null == NullKind::kPermuteTargets) {
    std::vector<int32_t> column_of(static_cast<size_t>(plan.candidate_sets), -1);
    for (size_t n = 0; n < static_cast<size_t>(plan.examples); ++n) {
      const int32_t set = plan.candidate[p][n];
      if (set < 0) continue;
      int32_t& column = column_of[static_cast<size_t>(set)];
      if (column < 0) {
        column = static_cast<int32_t>(layout.set_columns.size());
        layout.set_columns.push_back(set);
      }
      layout.rows.push_back(n);
      layout.target.push_back(column);
    }
    layout.columns = static_cast<int64_t>(layout.set_columns.size());
    return layout;
  }
  int64_t fewest = ProbePlan::kUniformCandidates;
  for (size_t n = 0; n < static_cast<size_t>(plan.examples); ++n) {
    if (plan.target_count[p][n] == 0) continue;
    fewest = std::min(fewest, plan.uniform_count[n]);
    layout.rows.push_back(n);
    layout.target.push_back(0);
  }
  layout.columns = 1 + fewest;
  return layout;
}

/// One layer's probe on the host; no chunks: its attention cannot be trusted.
struct LayerOnHost {
  int64_t heads = 0;
  std::vector<HostRows> rows;
  std::vector<SeenKeys> seen;
};

std::vector<LayerOnHost> layers_of(const Capture& capture, const ProbePlan& plan) {
  std::vector<LayerOnHost> layers;
  for (const auto& [layer, own] : capture.layers) {
    LayerOnHost& added = layers.emplace_back();
    added.heads = own.spectrum.empty() ? 0 : own.spectrum.gram.size(0);
    if (!own.attention_trusted) continue;
    for (size_t c = 0; c < own.attention.size(); ++c) {
      added.rows.emplace_back(own.attention[c]);
      added.seen.emplace_back(own, plan, c);
    }
  }
  return layers;
}

/// Where each example of a plan lies.
struct PlaceInChunks {
  size_t chunk;
  int64_t row;
};

std::vector<PlaceInChunks> places_of(const ProbePlan& plan) {
  std::vector<PlaceInChunks> places;
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    for (int64_t n = 0; n < plan.chunks[c].tokens.size(0); ++n) places.push_back({c, n});
  }
  return places;
}

/// What every head gave to the candidates of a pattern; NaN: hidden, or not measured.
struct CandidateTables {
  CandidateTable margins, masses;
};

CandidateTables tables_of(const std::vector<LayerOnHost>& layers,
                          const std::vector<PlaceInChunks>& places, const ProbePlan& plan, size_t p,
                          const NullLayout& layout, int64_t heads) {
  CandidateTable margins{
      static_cast<int64_t>(layout.rows.size()), layout.columns, heads, {}, layout.target};
  margins.values.assign(layout.rows.size() * static_cast<size_t>(layout.columns * heads),
                        static_cast<float>(kNaN));
  CandidateTable masses = margins;
  size_t next = 0;  // of all heads on a row's candidate, side by side
  for (const size_t example : layout.rows) {
    const auto [chunk, n] = places[example];
    const int64_t* offsets = plan.chunks[chunk].offsets.const_data_ptr<int64_t>() + n * plan.groups;
    for (int64_t column = 0; column < layout.columns; ++column) {
      const int64_t group = layout.group(plan, p, column);
      const int64_t keys = offsets[group + 1] - offsets[group];
      const float size = static_cast<float>(std::max<int64_t>(1, keys));
      size_t out = next;
      for (const LayerOnHost& layer : layers) {
        // A candidate hidden from the layer stays NaN and leaves its heads out of the test.
        if (!layer.rows.empty() && layer.seen[chunk].in_group(n, group) >= keys) {
          for (int64_t h = 0; h < layer.heads; ++h) {
            const HostRows::Row row = layer.rows[chunk].row(n, h, 0);
            margins.values[out + static_cast<size_t>(h)] = row.score(group);
            masses.values[out + static_cast<size_t>(h)] = row.mass(group) / size;
          }
        }
        out += static_cast<size_t>(layer.heads);
      }
      next += static_cast<size_t>(heads);
    }
  }
  return {std::move(margins), std::move(masses)};
}

}  // namespace

std::vector<PatternNulls> test_nulls(const Capture& capture, const ProbePlan& plan,
                                     std::span<const NullsWanted> wanted, double alpha,
                                     uint64_t seed, std::span<HeadReading> readings) {
  // All layers side by side: the maximum statistic is over every head of the probe.
  const int64_t heads = static_cast<int64_t>(readings.size());
  const std::vector<LayerOnHost> layers = layers_of(capture, plan);
  const std::vector<PlaceInChunks> places = places_of(plan);
  std::vector<PatternNulls> nulls(plan.patterns.size());
  for (size_t p = 0; p < plan.patterns.size(); ++p) {
    if (!wanted[p].margin && !wanted[p].mass) continue;
    const NullLayout layout = layout_of(plan, p);
    if (layout.rows.size() < 8 || layout.columns < 2 || heads == 0)
      continue;  // too little to draw a null from
    const CandidateTables tables = tables_of(layers, places, plan, p, layout, heads);
    const NullKind kind = plan.patterns[p].null;
    const uint64_t pattern_seed = seed * 1000003u + p;
    if (wanted[p].margin)
      nulls[p].margin = max_statistic_test(tables.margins, kind, alpha, pattern_seed);
    if (wanted[p].mass)
      nulls[p].mass = max_statistic_test(tables.masses, kind, alpha, pattern_seed);
    for (size_t h = 0; h < readings.size(); ++h) {
      if (nulls[p].margin) readings[h].patterns[p].margin_z = nulls[p].margin->z[h];
      if (nulls[p].mass) readings[h].patterns[p].mass_z = nulls[p].mass->z[h];
    }
  }
  return nulls;
}

}  // namespace headscope
