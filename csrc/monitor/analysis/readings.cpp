#include "csrc/monitor/analysis/readings.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "csrc/probe/seen_keys.h"
#include "headscope/spectrum.h"

namespace headscope {
namespace {

// The reference's floor under a selectivity's denominator.
constexpr double kControlFloor = 1e-8;

/// Second moments in double, [H, D, D] each, times N; of a G about the shift c, with m = s / N:
/// centred = G - N m m^T, uncentred = centred + N (m + c)(m + c)^T. Both may be the same tensor,
/// which is left uncentred. In place, in as few passes as there can be: this is half of what the
/// eigenvalues cost.
void write_moments(const SpectrumCapture& spectrum, int64_t samples, at::Tensor uncentred,
                   const at::Tensor& centred) {
  const double n = static_cast<double>(samples);
  const at::Tensor about_shift = spectrum.sum.to(at::kDouble) / n;
  const at::Tensor mean = about_shift + spectrum.shift;
  centred.copy_(spectrum.gram);
  centred.addcmul_(about_shift.unsqueeze(2), about_shift.unsqueeze(1), -n);
  at::addcmul_out(uncentred, centred, mean.unsqueeze(2), mean.unsqueeze(1), n);
}

std::span<const double> row_of(const at::Tensor& values, int64_t row) {
  return {values.const_data_ptr<double>() + row * values.size(1),
          static_cast<size_t>(values.size(1))};
}

/// Sums over one layer's sampled rows for one head.
struct RowSums {
  double entropy = 0, first_mass = 0, max_logit = -std::numeric_limits<double>::infinity();
  int64_t rows = 0;
  bool finite = true;
};

/// Adds row r of (b, h); false: unused, fully masked or not finite.
bool add_row(const AttentionRows& rows, int64_t flat, RowSums& sums) {
  const double log_sum_exp = static_cast<double>(rows.log_sum_exp.const_data_ptr<float>()[flat]);
  if (std::isnan(log_sum_exp)) {
    sums.finite = false;
    return false;
  }
  if (std::isinf(log_sum_exp)) return false;  // every key masked: the row says nothing
  sums.entropy += static_cast<double>(rows.entropy.const_data_ptr<float>()[flat]);
  sums.first_mass += static_cast<double>(rows.first_mass.const_data_ptr<float>()[flat]);
  sums.max_logit =
      std::max(sums.max_logit, static_cast<double>(rows.max_logit.const_data_ptr<float>()[flat]));
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
  double mass = 0, margin = 0, control_mass = 0, lag_mass = 0, key_mass = 0;
  int64_t targets = 0, controls = 0, rows = 0, hidden_rows = 0, margin_rows = 0, keys = 0;

  /// A target that no key can be compared with (all masked) leaves the margin out, not the mass.
  void add_margin(float target_score, float reference_score) {
    const double difference =
        static_cast<double>(target_score) - static_cast<double>(reference_score);
    if (!std::isfinite(difference)) return;
    margin += difference;
    ++margin_rows;
  }
  double mean_margin() const {
    return margin_rows > 0 ? margin / static_cast<double>(margin_rows) : kNaN;
  }
};

/// What a layer sees of one probe chunk.
struct SeenChunk {
  std::vector<int64_t> groups;  // [row * groups]: seen keys of each group
  at::Tensor rows;              // [n, 1, T] bool; undefined: every key is seen
};

SeenChunk seen_chunk(const LayerCapture& layer, const ProbePlan& plan, size_t c) {
  const at::Tensor rows = c < layer.seen.size() ? layer.seen[c] : at::Tensor();
  return {seen_counts(plan.chunks[c].targets, plan.chunks[c].offsets, rows), rows};
}

/// Attention of a probe row on all keys: 1 but for a sink's share.
double key_mass(const LayerCapture& layer, const AttentionRows& rows, int64_t n, int64_t h) {
  if (!layer.sinks.defined()) return 1.0;
  const auto log_sum_exp = static_cast<double>(
      rows.log_sum_exp.const_data_ptr<float>()[n * rows.log_sum_exp.size(1) + h]);
  return 1.0 - std::exp(layer.sinks.const_data_ptr<double>()[h] - log_sum_exp);
}

/// A group's log-mean-exp over the keys of it that are seen, not over all.
float among_seen(float score, int64_t keys, int64_t seen) {
  if (seen == keys || seen == 0) return score;
  return score +
         static_cast<float>(std::log(static_cast<double>(keys) / static_cast<double>(seen)));
}

double selectivity_of(double mass_per_target, double mass_per_control) {
  return mass_per_target / std::max(mass_per_control, kControlFloor);
}

/// Rows as float tensors on the CPU; double inputs lose nothing that the readings keep.
AttentionRows as_float(const AttentionRows& rows) {
  const auto plain = [](const at::Tensor& tensor) {
    return tensor.to(at::kCPU, at::kFloat).contiguous();
  };
  return {plain(rows.mass),      plain(rows.score),       plain(rows.entropy),
          plain(rows.max_logit), plain(rows.log_sum_exp), plain(rows.first_mass)};
}

// Entries of the moments that are solved together: 16 MB of f64, as many matrices as fill a
// device's multiprocessors or a core's vectors many times over.
constexpr int64_t kMostMoments = int64_t{2} << 20;

/// A layer with samples; its matrices: the uncentred moments of its heads, the centred ones, and
/// the null's.
struct MeasuredSpectrum {
  LayerReadings readings;
  int64_t samples, null_samples;
  const at::Tensor& gram() const { return readings.layer->spectrum.gram; }
  int64_t heads() const { return gram().size(0); }
  int64_t matrices() const { return (null_samples > 0 ? 3 : 2) * heads(); }
  int64_t entries() const { return matrices() * gram().size(1) * gram().size(1); }
};

/// Figures of one layer from its matrices' eigenvalues (times N), values[first] and on.
void read_values(const MeasuredSpectrum& own, const at::Tensor& values, int64_t first) {
  for (size_t h = 0; h < own.readings.heads.size(); ++h) {
    HeadReading& reading = own.readings.heads[h];
    const int64_t row = first + static_cast<int64_t>(h);
    const auto uncentred = row_of(values, row), centred = row_of(values, row + own.heads());
    reading.samples = own.samples;
    reading.participation_ratio = participation_ratio(uncentred);
    reading.participation_ratio_quadratic = participation_ratio_quadratic(uncentred);
    reading.participation_ratio_centred = participation_ratio(centred);
    reading.participation_ratio_quadratic_centred = participation_ratio_quadratic(centred);
    if (own.null_samples > 0) {
      reading.null_participation_ratio = participation_ratio(row_of(values, row + 2 * own.heads()));
    }
    double trace = 0;
    for (const double value : uncentred) trace += value;
    const double n = static_cast<double>(own.samples);
    reading.output_norm = std::sqrt(std::max(0.0, trace / n));
    if (std::isnan(trace)) {
      reading.finite = false;
      reading.output_norm = kNaN;
      continue;
    }
    reading.eigenvalues.assign(uncentred.rbegin(), uncentred.rend());
    for (double& value : reading.eigenvalues) value /= n;
  }
}

/// Layers of one width on one device, all at once: the solver works on many matrices side by side.
void read_together(std::span<const MeasuredSpectrum> layers) {
  const at::Tensor& gram = layers.front().gram();
  int64_t matrices = 0, next = 0;
  for (const MeasuredSpectrum& own : layers) matrices += own.matrices();
  const at::Tensor moments =
      at::empty({matrices, gram.size(1), gram.size(1)}, gram.options().dtype(at::kDouble));
  for (const MeasuredSpectrum& own : layers) {
    const auto part = [&](int64_t n) {
      return moments.narrow(0, next + n * own.heads(), own.heads());
    };
    write_moments(own.readings.layer->spectrum, own.samples, part(0), part(1));
    if (own.null_samples > 0)
      write_moments(own.readings.layer->null_spectrum, own.null_samples, part(2), part(2));
    next += own.matrices();
  }
  // In f64 where that costs twice as much, in f32 on a device that has few units for it.
  const at::Tensor values = moments.is_cpu()
                                ? symmetric_eigenvalues(moments)
                                : symmetric_eigenvalues(moments.to(at::kFloat)).to(at::kCPU);
  next = 0;
  for (const MeasuredSpectrum& own : layers) {
    read_values(own, values, next);
    next += own.matrices();
  }
}

int64_t samples_of(const SpectrumCapture& spectrum) {
  return spectrum.empty() ? 0 : spectrum.count.item<int64_t>();
}

}  // namespace

std::vector<LayerReadings> read_spectra(const Capture& capture, std::span<HeadReading> heads) {
  std::vector<LayerReadings> layers;
  std::vector<MeasuredSpectrum> together;
  int64_t entries = 0;
  for (const auto& [index, layer] : capture.layers) {
    if (layer.spectrum.empty()) continue;
    const at::Tensor& gram = layer.spectrum.gram;
    const auto count = static_cast<size_t>(gram.size(0));
    layers.push_back({&layer, heads.first(count)});
    heads = heads.subspan(count);
    const int64_t samples = samples_of(layer.spectrum);
    if (samples == 0) continue;
    layers.back().most = static_cast<double>(std::min(samples, gram.size(1)));
    const MeasuredSpectrum own{layers.back(), samples, samples_of(layer.null_spectrum)};
    if (!together.empty() && (together.front().gram().size(1) != gram.size(1) ||
                              together.front().gram().device() != gram.device() ||
                              entries + own.entries() > kMostMoments)) {
      read_together(together);
      together.clear();
      entries = 0;
    }
    together.push_back(own);
    entries += own.entries();
  }
  if (!together.empty()) read_together(together);
  return layers;
}

void read_train_attention(const LayerCapture& layer, const std::vector<TrainPlan>& plans,
                          std::span<const Pattern> patterns, std::span<HeadReading> readings) {
  if (layer.attention.empty() || !layer.attention_trusted) return;
  const size_t pattern_count = patterns.size();
  std::vector<RowSums> row_sums(readings.size());
  std::vector<PatternSums> sums(readings.size() * pattern_count);
  for (size_t micro = 0; micro < layer.attention.size(); ++micro) {
    const AttentionRows rows = as_float(layer.attention[micro]);
    const TrainPlan& plan = plans[layer.plan_of[micro]];
    const int64_t batch = rows.entropy.size(0), heads = rows.entropy.size(1),
                  sampled = rows.entropy.size(2);
    const float* mass = rows.mass.const_data_ptr<float>();
    const float* score = rows.score.const_data_ptr<float>();
    const int64_t* query = plan.rows.const_data_ptr<int64_t>();
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t r = 0; r < sampled; ++r) {
          const int64_t flat = (b * heads + h) * sampled + r;
          if (query[b * sampled + r] < 0) continue;  // padding
          if (!add_row(rows, flat, row_sums[static_cast<size_t>(h)])) continue;
          for (size_t p = 0; p < pattern_count; ++p) {
            const size_t entry = static_cast<size_t>(b * sampled + r) * pattern_count + p;
            const int32_t targets = plan.target_count[entry], controls = plan.control_count[entry];
            if (targets == 0 || controls == 0) continue;
            PatternSums& own = sums[static_cast<size_t>(h) * pattern_count + p];
            const size_t first = static_cast<size_t>(flat * plan.groups), target = first + p,
                         control = first + static_cast<size_t>(plan.control_group[p]);
            const double target_mass = static_cast<double>(mass[target]);
            const double control_mass = static_cast<double>(mass[control]);
            own.mass += target_mass;
            own.control_mass += control_mass;
            own.lag_mass += control_mass * targets / controls;
            own.targets += targets;
            own.controls += controls;
            ++own.rows;
            own.add_margin(score[target], score[control]);
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
      reading.control_mass = own.control_mass / static_cast<double>(own.controls);
      reading.selectivity =
          selectivity_of(own.mass / static_cast<double>(own.targets), reading.control_mass);
      reading.margin = own.mean_margin();
    }
    finish_rows(row_sums[h], readings[h]);
  }
}

void read_probe_attention(const LayerCapture& layer, const ProbePlan& plan,
                          std::span<HeadReading> readings) {
  if (layer.attention.empty() || !layer.attention_trusted) return;
  const size_t pattern_count = plan.patterns.size();
  const at::Tensor& all_targets = layer.attention.front().mass;
  const int64_t heads = all_targets.size(1), groups = plan.groups;
  std::vector<RowSums> row_sums(readings.size());
  std::vector<PatternSums> sums(readings.size() * pattern_count);
  std::vector<double> control(readings.size(), 0.0);
  std::vector<int64_t> control_positions(readings.size(), 0);
  int64_t example = 0;
  for (size_t c = 0; c < layer.attention.size(); ++c) {
    const AttentionRows rows = as_float(layer.attention[c]);
    const SeenChunk seen = seen_chunk(layer, plan, c);
    const int64_t* offsets = plan.chunks[c].offsets.const_data_ptr<int64_t>();
    const int64_t count = rows.entropy.size(0);
    for (int64_t n = 0; n < count; ++n, ++example) {
      const int64_t* seen_group = seen.groups.data() + n * groups;
      const int64_t* offset = offsets + n * groups;
      const int64_t keys = seen.rows.defined() ? seen.rows[n].sum().item<int64_t>() : plan.context;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t flat = n * heads + h;
        if (!add_row(rows, flat, row_sums[static_cast<size_t>(h)])) continue;
        const float* mass = rows.mass.const_data_ptr<float>() + flat * groups;
        const float* score = rows.score.const_data_ptr<float>() + flat * groups;
        control[static_cast<size_t>(h)] += static_cast<double>(mass[plan.control_group()]);
        control_positions[static_cast<size_t>(h)] += seen_group[plan.control_group()];
        for (size_t p = 0; p < pattern_count; ++p) {
          const int64_t targets = plan.target_count[p][static_cast<size_t>(example)];
          if (targets == 0) continue;
          PatternSums& own = sums[static_cast<size_t>(h) * pattern_count + p];
          if (seen_group[plan.target_group(p)] < targets) {
            ++own.hidden_rows;
            continue;
          }
          own.mass += static_cast<double>(mass[plan.target_group(p)]);
          own.targets += targets;
          own.keys += keys;
          own.key_mass += key_mass(layer, rows, n, h);
          ++own.rows;
          const int64_t reference = plan.reference_group(p);
          own.add_margin(score[plan.target_group(p)],
                         among_seen(score[reference], offset[reference + 1] - offset[reference],
                                    seen_group[reference]));
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
    finish_rows(row_sums[h], readings[h]);
  }
  if (!layer.repeat) return;
  const at::Tensor matched = layer.repeat->mass.to(at::kCPU, at::kDouble).mean({0, 2, 3});
  for (size_t h = 0; h < readings.size(); ++h) {
    readings[h].prefix_matching = matched[static_cast<int64_t>(h)].item<double>();
  }
}

namespace {

/// Which table a pattern's null needs: column count and, per row, the group of each column and the
/// row's own column.
struct NullLayout {
  std::vector<int64_t> rows;         // examples that enter
  std::vector<int64_t> set_columns;  // permuted patterns: candidate sets in use
  int64_t columns = 0;
  std::vector<int32_t> target;
};

NullLayout layout_of(const ProbePlan& plan, size_t p) {
  NullLayout layout;
  if (plan.patterns[p].null == NullKind::kPermuteTargets) {
    std::vector<int32_t> column_of(static_cast<size_t>(plan.candidate_sets), -1);
    for (int64_t n = 0; n < plan.examples; ++n) {
      const int32_t set = plan.candidate[p][static_cast<size_t>(n)];
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
  for (int64_t n = 0; n < plan.examples; ++n) {
    if (plan.target_count[p][static_cast<size_t>(n)] == 0) continue;
    fewest = std::min(fewest, plan.uniform_count[static_cast<size_t>(n)]);
    layout.rows.push_back(n);
    layout.target.push_back(0);
  }
  layout.columns = 1 + fewest;
  return layout;
}

}  // namespace

std::vector<PatternNulls> test_nulls(const Capture& capture, const ProbePlan& plan,
                                     std::span<const NullsWanted> wanted, double alpha,
                                     uint64_t seed, std::span<HeadReading> readings) {
  // All layers side by side: the maximum statistic is over every head of the probe.
  const int64_t heads = static_cast<int64_t>(readings.size());
  std::vector<std::vector<AttentionRows>> by_layer;
  std::vector<std::vector<SeenChunk>> seen_by_layer;
  std::vector<int64_t> layer_heads;
  for (const auto& [layer, own] : capture.layers) {
    std::vector<AttentionRows> chunks;
    std::vector<SeenChunk> seen;
    if (own.attention_trusted) {
      for (const auto& rows : own.attention) chunks.push_back(as_float(rows));
      for (size_t c = 0; c < chunks.size(); ++c) seen.push_back(seen_chunk(own, plan, c));
    }
    by_layer.push_back(std::move(chunks));
    seen_by_layer.push_back(std::move(seen));
    layer_heads.push_back(own.spectrum.empty() ? 0 : own.spectrum.gram.size(0));
  }
  std::vector<int64_t> chunk_of, row_in_chunk;
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    for (int64_t n = 0; n < plan.chunks[c].tokens.size(0); ++n) {
      chunk_of.push_back(static_cast<int64_t>(c));
      row_in_chunk.push_back(n);
    }
  }

  std::vector<PatternNulls> nulls(plan.patterns.size());
  for (size_t p = 0; p < plan.patterns.size(); ++p) {
    if (!wanted[p].margin && !wanted[p].mass) continue;
    const NullLayout layout = layout_of(plan, p);
    if (layout.rows.size() < 8 || layout.columns < 2 || heads == 0)
      continue;  // too little to draw a null from
    CandidateTable margins{
        static_cast<int64_t>(layout.rows.size()), layout.columns, heads, {}, layout.target};
    margins.values.assign(layout.rows.size() * static_cast<size_t>(layout.columns * heads),
                          static_cast<float>(kNaN));
    CandidateTable masses = margins;
    for (size_t i = 0; i < layout.rows.size(); ++i) {
      const auto example = static_cast<size_t>(layout.rows[i]);
      const auto chunk = static_cast<size_t>(chunk_of[example]);
      const int64_t* offsets = plan.chunks[chunk].offsets.const_data_ptr<int64_t>() +
                               row_in_chunk[example] * plan.groups;
      for (int64_t column = 0; column < layout.columns; ++column) {
        const int64_t group =
            !layout.set_columns.empty()
                ? plan.candidate_group(layout.set_columns[static_cast<size_t>(column)])
            : column == 0 ? plan.target_group(p)
                          : plan.uniform_group(column - 1);
        const int64_t keys = offsets[group + 1] - offsets[group];
        const float size = static_cast<float>(std::max<int64_t>(1, keys));
        const size_t out = (i * static_cast<size_t>(layout.columns) + static_cast<size_t>(column)) *
                           static_cast<size_t>(heads);
        int64_t first = 0;
        for (size_t l = 0; l < by_layer.size(); first += layer_heads[l], ++l) {
          if (by_layer[l].empty()) continue;
          // A candidate hidden from the layer stays NaN and leaves its heads out of the test.
          const int64_t* seen = seen_by_layer[l][chunk].groups.data();
          if (seen[row_in_chunk[example] * plan.groups + group] < keys) continue;
          const AttentionRows& rows = by_layer[l][chunk];
          for (int64_t h = 0; h < layer_heads[l]; ++h) {
            const int64_t from = (row_in_chunk[example] * layer_heads[l] + h) * plan.groups + group;
            margins.values[out + static_cast<size_t>(first + h)] =
                rows.score.const_data_ptr<float>()[from];
            masses.values[out + static_cast<size_t>(first + h)] =
                rows.mass.const_data_ptr<float>()[from] / size;
          }
        }
      }
    }
    const uint64_t pattern_seed = seed * 1000003u + p;
    if (wanted[p].margin) {
      nulls[p].margin = max_statistic_test(margins, plan.patterns[p].null, alpha, pattern_seed);
    }
    if (wanted[p].mass) {
      nulls[p].mass = max_statistic_test(masses, plan.patterns[p].null, alpha, pattern_seed);
    }
    for (size_t h = 0; h < readings.size(); ++h) {
      if (nulls[p].margin) readings[h].patterns[p].margin_z = nulls[p].margin->z[h];
      if (nulls[p].mass) readings[h].patterns[p].mass_z = nulls[p].mass->z[h];
    }
  }
  return nulls;
}

}  // namespace headscope
