#include "csrc/monitor/analysis/null_tests.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "csrc/monitor/analysis/host_rows.h"

namespace headscope {
namespace {

/// Which table a permuted pattern's null needs: the candidate sets in use and, per row, its own.
struct NullLayout {
  std::vector<size_t> rows;          // examples that enter
  std::vector<int64_t> set_columns;  // candidate sets in use
  std::vector<int32_t> target;
};

NullLayout layout_of(const ProbePlan& plan, size_t p, int64_t examples) {
  NullLayout layout;
  std::vector<int32_t> column_of(static_cast<size_t>(plan.candidate_sets), -1);
  for (size_t n = 0; n < static_cast<size_t>(examples); ++n) {
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
  return layout;
}

/// One layer's probe on the host; no chunks: its attention cannot be trusted.
struct LayerOnHost {
  int64_t heads = 0;
  std::vector<HostRows> rows, queries;
  std::vector<SeenKeys> seen, seen_at_queries;
};

std::vector<LayerOnHost> layers_of(const Capture& capture, const ProbePlan& plan) {
  std::vector<LayerOnHost> layers;
  for (const auto& [layer, own] : capture.layers) {
    LayerOnHost& added = layers.emplace_back();
    added.heads = own.spectrum.empty() ? 0 : own.spectrum.gram.size(0);
    if (!own.attention_trusted) continue;
    for (size_t c = 0; c < own.attention.size(); ++c) {
      added.rows.emplace_back(own.attention[c]);
      added.seen.push_back(SeenKeys::at_last(own, plan, c));
    }
    for (size_t c = 0; c < own.query_attention.size(); ++c) {
      added.queries.emplace_back(own.query_attention[c]);
      added.seen_at_queries.push_back(SeenKeys::at_queries(own, plan.queries, c));
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
                          const std::vector<PlaceInChunks>& places, const ProbePlan& plan,
                          const NullLayout& layout, int64_t heads) {
  const int64_t columns = std::ssize(layout.set_columns);
  CandidateTable margins{
      static_cast<int64_t>(layout.rows.size()), columns, heads, {}, layout.target};
  margins.values.assign(layout.rows.size() * static_cast<size_t>(columns * heads),
                        static_cast<float>(kNaN));
  CandidateTable masses = margins;
  size_t next = 0;  // of all heads on a row's candidate, side by side
  for (const size_t example : layout.rows) {
    const auto [chunk, n] = places[example];
    const int64_t* offsets = plan.chunks[chunk].offsets.const_data_ptr<int64_t>() + n * plan.groups;
    for (const int64_t set : layout.set_columns) {
      const int64_t group = plan.candidate_group(set);
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

/// Margins of a pattern that is defined by a position, at the sampled queries: against the ordinary
/// keys and against those beside the targets. NaN: not measured.
MarginTable margins_at_queries(const std::vector<LayerOnHost>& layers, const QueryPlan& plan,
                               size_t chunks, size_t i, int64_t heads) {
  MarginTable table{heads, 2, {}, {}, {}};
  const int64_t target = plan.target_group(i);
  const int64_t references[] = {plan.ordinary_group(), plan.beside_group(i)};
  int32_t example = 0;
  for (size_t c = 0; c < std::min(chunks, plan.chunks.size()); ++c) {
    const QueryPlan::Chunk& asked = plan.chunks[c];
    const int64_t* query = asked.rows.const_data_ptr<int64_t>();
    for (int64_t n = 0; n < asked.rows.size(0); ++n, ++example) {
      for (int64_t r = 0; r < plan.queries; ++r) {
        const int64_t first = (n * plan.queries + r) * plan.groups();
        const int64_t targets = QueryPlan::keys(asked, first + target);
        // A log-mean-exp of fewer keys than the targets' would be lower by itself.
        if (targets == 0 || QueryPlan::keys(asked, first + references[0]) < targets ||
            QueryPlan::keys(asked, first + references[1]) < targets)
          continue;
        table.row.push_back(example);
        table.position.push_back(static_cast<int32_t>(query[n * plan.queries + r]));
        const size_t begin = table.values.size();
        table.values.resize(begin + static_cast<size_t>(2 * heads), static_cast<float>(kNaN));
        size_t out = begin;
        for (const LayerOnHost& layer : layers) {
          for (size_t reference = 0; reference < 2 && !layer.queries.empty(); ++reference) {
            const SeenKeys& seen = layer.seen_at_queries[c];
            if (seen.in_group(n, target, r) < targets ||
                seen.in_group(n, references[reference], r) < targets)
              continue;
            for (int64_t h = 0; h < layer.heads; ++h) {
              const HostRows::Row row = layer.queries[c].row(n, h, r);
              table.values[out + reference * static_cast<size_t>(heads) + static_cast<size_t>(h)] =
                  row.score(target) - among_seen(row.score(references[reference]),
                                                 seen.asked(n, references[reference], r),
                                                 seen.in_group(n, references[reference], r));
            }
          }
          out += static_cast<size_t>(layer.heads);
        }
      }
    }
  }
  return table;
}

}  // namespace

std::vector<PatternNulls> test_nulls(const Capture& capture, const ProbePlan& plan,
                                     std::span<const NullsWanted> wanted,
                                     const NullTestSettings& settings,
                                     std::span<HeadReading> readings) {
  // All layers side by side: the maximum statistic is over every head of the probe.
  const int64_t heads = static_cast<int64_t>(readings.size());
  const std::vector<LayerOnHost> layers = layers_of(capture, plan);
  const std::vector<PlaceInChunks> places = places_of(plan);
  std::vector<PatternNulls> nulls(plan.patterns.size());
  for (size_t p = 0; p < plan.patterns.size(); ++p) {
    if (heads == 0) continue;
    if (plan.patterns[p].null == NullKind::kEffectBound) {
      const int64_t place = plan.place_in_queries(p);
      if (place < 0 || !wanted[p].margin) continue;
      nulls[p].margin = effect_bound_test(margins_at_queries(layers, plan.queries, capture.chunks(),
                                                             static_cast<size_t>(place), heads),
                                          settings.floor, settings.alpha);
    } else if (wanted[p].margin || wanted[p].mass) {
      const NullLayout layout = layout_of(plan, p, plan.examples_in(capture.chunks()));
      if (layout.rows.size() < 8 || layout.set_columns.size() < 2)
        continue;  // too little to draw a null from
      const CandidateTables tables = tables_of(layers, places, plan, layout, heads);
      const uint64_t pattern_seed = settings.seed * 1000003u + p;
      const auto test = [&](const CandidateTable& table) {
        return max_statistic_test(table, settings.alpha, pattern_seed, settings.draws,
                                  settings.stop);
      };
      if (wanted[p].margin) nulls[p].margin = test(tables.margins);
      if (wanted[p].mass) nulls[p].mass = test(tables.masses);
    }
    for (size_t h = 0; h < readings.size(); ++h) {
      if (nulls[p].margin) readings[h].patterns[p].margin_z = nulls[p].margin->z[h];
      if (nulls[p].mass) readings[h].patterns[p].mass_z = nulls[p].mass->z[h];
    }
  }
  return nulls;
}

}  // namespace headscope
