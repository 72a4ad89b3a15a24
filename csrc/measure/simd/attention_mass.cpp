#include "csrc/measure/simd/attention_mass.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/measure/simd/row_stream.h"

namespace headscope::simd {
namespace {

/// Log-sum-exp of a line's target groups while its keys pass by. The running maximum is kept in
/// score[g] and the sum about it in mass[g], so that any number of groups needs no scratch.
template <typename Sum>
struct TargetSums {
  Sum *mass, *score;
  const TargetIndex::Entry *next, *end;

  void start(int64_t groups) {
    std::fill_n(mass, groups, Sum{0});
    std::fill_n(score, groups, static_cast<Sum>(kMinusInfinity));
  }

  void absorb(const Chunk<Sum>& chunk, int64_t lane) {
    for (; next != end && next->key < chunk.begin + chunk.count; ++next) {
      if (next->key < chunk.begin) continue;
      const Sum own = chunk.scores[(next->key - chunk.begin) * chunk.key_step + lane];
      Sum& top = score[next->group];
      Sum& total = mass[next->group];
      if (!(own > static_cast<Sum>(kMinusInfinity))) continue;
      if (own > top) {
        total = total * std::exp(top - own) + 1;
        top = own;
      } else {
        total += std::exp(own - top);
      }
    }
  }

  /// Turns the sums into mass and log-mean-exp of each group.
  void finish(const TargetIndex& index, int64_t row, double log_sum_exp) {
    for (int64_t g = 0; g < index.groups(); ++g) {
      if (!std::isfinite(log_sum_exp)) {
        mass[g] = score[g] = std::numeric_limits<Sum>::quiet_NaN();
      } else if (mass[g] > 0) {
        const double total = mass[g], top = score[g];
        mass[g] = static_cast<Sum>(total * std::exp(top - log_sum_exp));
        score[g] =
            static_cast<Sum>(top + std::log(total / static_cast<double>(index.size(row, g))));
      }
    }
  }
};

}  // namespace

TargetIndex::TargetIndex(const int64_t* targets, const int64_t* offsets, int64_t rows,
                         int64_t groups)
    : offsets_(offsets), groups_(groups), entries_(static_cast<size_t>(offsets[rows * groups])) {
  for (int64_t i = 0; i < rows * groups; ++i) {
    for (int64_t n = offsets[i]; n < offsets[i + 1]; ++n)
      entries_[static_cast<size_t>(n)] = {static_cast<int32_t>(targets[n]),
                                          static_cast<int32_t>(i % groups)};
  }
  for (int64_t row = 0; row < rows; ++row) {
    std::sort(entries_.begin() + offsets[row * groups],
              entries_.begin() + offsets[(row + 1) * groups],
              [](const Entry& x, const Entry& y) { return x.key < y.key; });
  }
}

const TargetIndex::Entry* TargetIndex::begin(int64_t row) const {
  return entries_.data() + offsets_[row * groups_];
}

int64_t TargetIndex::size(int64_t row, int64_t group) const {
  return offsets_[row * groups_ + group + 1] - offsets_[row * groups_ + group];
}

template <typename Sum>
void measure_rows(const RowsCall& call, KeyHeads range, const TargetIndex& targets,
                  const MassOutputs<Sum>& out) {
  std::vector<TargetSums<Sum>> sums;
  std::vector<Sum> first_key;
  for_each_stream<Sum>(
      call, range, 0, [&](RowStream<Sum>& stream, int64_t b, const std::vector<Line>& lines) {
        const int64_t all = static_cast<int64_t>(lines.size());
        sums.resize(static_cast<size_t>(stream.lines_per_pass()));
        first_key.resize(sums.size());
        for (int64_t pass = 0; pass < all; pass += stream.lines_per_pass()) {
          const int64_t count = std::min(stream.lines_per_pass(), all - pass);
          const Line* line = lines.data() + pass;
          const auto place = [&](int64_t l) {
            return (b * call.heads + line[l].head) * call.sampled + line[l].sampled;
          };
          const auto row = [&](int64_t l) { return b * call.sampled + line[l].sampled; };
          for (int64_t l = 0; l < count; ++l) {
            const int64_t group = place(l) * targets.groups();
            sums[static_cast<size_t>(l)] = {out.mass + group, out.score + group,
                                            targets.begin(row(l)), targets.end(row(l))};
            sums[static_cast<size_t>(l)].start(targets.groups());
          }
          std::fill(first_key.begin(), first_key.end(), static_cast<Sum>(kMinusInfinity));
          stream.begin_pass(line, count);
          stream.stream([&](const Chunk<Sum>& chunk) {
            for (int64_t l = 0; l < chunk.lines; ++l) {
              const size_t own = static_cast<size_t>(chunk.first_line + l);
              if (chunk.begin == 0) first_key[own] = chunk.scores[l];
              sums[own].absorb(chunk, l);
            }
            stream.absorb(chunk);
          });
          for (int64_t l = 0; l < count; ++l) {
            const RowSums total = stream.sums(l);
            const size_t own = static_cast<size_t>(l);
            sums[own].finish(targets, row(l), total.log_sum_exp);
            out.log_sum_exp[place(l)] = static_cast<Sum>(total.log_sum_exp);
            if (!std::isfinite(total.log_sum_exp)) continue;
            out.max_logit[place(l)] = static_cast<Sum>(total.max);
            out.entropy[place(l)] = static_cast<Sum>(total.entropy);
            out.first_mass[place(l)] =
                static_cast<Sum>(std::exp(static_cast<double>(first_key[own]) - total.log_sum_exp));
          }
        }
      });
}

template <typename Sum>
void output_rows(const RowsCall& call, KeyHeads range, const Strided4& v, int64_t value_width,
                 Sum* out) {
  const AttentionKernels<Sum>& kernels = attention_kernels<Sum>();
  const size_t width = static_cast<size_t>(value_width);
  std::vector<RowSums> sums;
  std::vector<double> rows, most;
  std::vector<Sum> widened(width);
  const auto value_of = [&](int64_t b, int64_t head, int64_t key) {
    const Sum* value = widened.data();
    const int64_t offset =
        b * v.batch + head / (call.heads / call.key_heads) * v.head + key * v.token;
    visit_elements(v.data, call.element, offset, [&](const auto* data) {
      if constexpr (std::is_same_v<decltype(data), const Sum*>) {
        if (v.width == 1) {
          value = data;
          return;
        }
      }
      kernels.widen_rows(data, call.element, 0, v.width, 1, 0, value_width, value_width,
                         widened.data());
    });
    return value;
  };
  for_each_stream<Sum>(
      call, range, value_width,
      [&](RowStream<Sum>& stream, int64_t b, const std::vector<Line>& lines) {
        const int64_t all = static_cast<int64_t>(lines.size());
        sums.resize(static_cast<size_t>(stream.lines_per_pass()));
        most.resize(sums.size());
        rows.resize(sums.size() * width);
        const auto has_output = [&](int64_t l) {
          return std::isfinite(sums[static_cast<size_t>(l)].log_sum_exp);
        };
        for (int64_t pass = 0; pass < all; pass += stream.lines_per_pass()) {
          const int64_t count = std::min(stream.lines_per_pass(), all - pass);
          const Line* line = lines.data() + pass;
          stream.begin_pass(line, count);
          stream.stream([&](const Chunk<Sum>& chunk) { stream.absorb(chunk); });
          for (int64_t l = 0; l < count; ++l) {
            sums[static_cast<size_t>(l)] = stream.sums(l);
            most[static_cast<size_t>(l)] = has_output(l) ? sums[static_cast<size_t>(l)].max : 0;
          }
          std::fill(rows.begin(), rows.end(), 0.0);
          // The keys pass by once more: weights are known now, and never held for more than a
          // chunk.
          stream.stream([&](const Chunk<Sum>& chunk) {
            stream.weigh(chunk, most.data() + chunk.first_line);
            for (int64_t j = 0; j < chunk.count; ++j) {
              const Sum* value = nullptr;
              for (int64_t l = 0; l < chunk.lines; ++l) {
                const int64_t own = chunk.first_line + l;
                const double weight = static_cast<double>(chunk.scores[j * chunk.key_step + l]);
                // A masked key's value may be anything, NaN included.
                if (weight == 0 || !has_output(own)) continue;
                if (value == nullptr) value = value_of(b, line->head, chunk.begin + j);
                kernels.add_weighted(value, weight, value_width,
                                     rows.data() + static_cast<size_t>(own) * width);
              }
            }
          });
          for (int64_t l = 0; l < count; ++l) {
            if (!has_output(l)) continue;
            const RowSums& own = sums[static_cast<size_t>(l)];
            const double share = std::exp(own.max - own.log_sum_exp);
            const double* row = rows.data() + static_cast<size_t>(l) * width;
            Sum* target = out + ((b * call.heads + line[l].head) * call.sampled + line[l].sampled) *
                                    value_width;
            for (size_t i = 0; i < width; ++i) target[i] = static_cast<Sum>(share * row[i]);
          }
        }
      });
}

template <typename Sum>
int64_t rows_scratch_bytes(const RowsCall& call, int64_t value_width) {
  const int64_t lines = call.heads / std::max<int64_t>(call.key_heads, 1) * call.sampled;
  const Plan plan = make_plan<Sum>(call, lines, value_width);
  const int64_t held = plan.owners * plan.lines_per_owner;
  const int64_t state = int64_t{sizeof(TargetSums<Sum>)} + int64_t{sizeof(RowSums)} +
                        (1 + value_width) * int64_t{sizeof(double)};
  return RowStream<Sum>::bytes(plan) + held * state + lines * int64_t{sizeof(Line)};
}

template void measure_rows(const RowsCall&, KeyHeads, const TargetIndex&,
                           const MassOutputs<float>&);
template void measure_rows(const RowsCall&, KeyHeads, const TargetIndex&,
                           const MassOutputs<double>&);
template void output_rows(const RowsCall&, KeyHeads, const Strided4&, int64_t, float*);
template void output_rows(const RowsCall&, KeyHeads, const Strided4&, int64_t, double*);
template int64_t rows_scratch_bytes<float>(const RowsCall&, int64_t);
template int64_t rows_scratch_bytes<double>(const RowsCall&, int64_t);

}  // namespace headscope::simd
