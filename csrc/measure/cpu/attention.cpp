#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <limits>
#include <vector>

#include "csrc/measure/cpu/kernels.h"

namespace headscope::cpu {
namespace {

/// Mask or bias seen as [B, Hq, Tq, Tk] (stride 0 where it broadcasts); additive values in double,
/// 0 / -inf for bool.
class MaskView {
 public:
  MaskView(const OptionalTensor& mask, const at::Tensor& q, const at::Tensor& k) {
    if (mask) view_ = mask->expand({q.size(0), q.size(1), q.size(2), k.size(2)});
  }

  /// Adds row (b, h, t) to scores [Tk], keys [begin, end) only.
  template <typename Sum>
  void add_row(int64_t b, int64_t h, int64_t t, int64_t begin, int64_t end, Sum* scores) const {
    if (!view_.defined()) return;
    const int64_t start = b * view_.stride(0) + h * view_.stride(1) + t * view_.stride(2);
    const int64_t step = view_.stride(3);
    if (view_.scalar_type() == at::kBool) {
      const bool* row = view_.const_data_ptr<bool>() + start;
      for (int64_t j = begin; j < end; ++j) {
        if (!row[j * step]) scores[j] = -std::numeric_limits<Sum>::infinity();
      }
      return;
    }
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::kHalf, at::kBFloat16, view_.scalar_type(), "headscope::mask", [&] {
          const scalar_t* row = view_.const_data_ptr<scalar_t>() + start;
          for (int64_t j = begin; j < end; ++j) scores[j] += static_cast<Sum>(row[j * step]);
        });
  }

 private:
  at::Tensor view_;
};

/// What both row operators read of one call.
struct Rows {
  Rows(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& positions_in,
       const AttentionCall& call)
      : q(q_in),
        k(k_in),
        positions(positions_in.const_data_ptr<int64_t>()),
        sampled(positions_in.size(1)),
        mask(call.bias, q, k),
        is_causal(call.is_causal),
        scale(call.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))))),
        softcap(call.softcap),
        window(call.window > 0 ? std::min(call.window, std::max(q.size(2), k.size(2)))
                               : std::max(q.size(2), k.size(2))) {
    if (call.documents) documents = call.documents->contiguous();
    if (call.sinks) sinks = call.sinks->to(at::kDouble).contiguous();
  }

  /// The sink's logit of a query head; -inf: no sink.
  double sink(int64_t h) const {
    return sinks.defined() ? sinks.const_data_ptr<double>()[h]
                           : -std::numeric_limits<double>::infinity();
  }

  const at::Tensor& q;
  const at::Tensor& k;
  const int64_t* positions;  // [B, R]
  int64_t sampled;
  MaskView mask;
  bool is_causal;
  double scale, softcap;
  int64_t window;
  at::Tensor documents, sinks;  // undefined: none
};

/// Pre-softmax scores of one sampled query against all keys; -inf where masked. False: the row is
/// unused.
template <typename In, typename Sum>
bool score_row(const Rows& rows, int64_t b, int64_t h, int64_t r, std::vector<Sum>& query,
               std::vector<Sum>& scores) {
  const int64_t t = rows.positions[b * rows.sampled + r];
  if (t == -1) return false;
  const int64_t width = rows.q.size(3), keys = rows.k.size(2);
  const int64_t key_head = h / (rows.q.size(1) / rows.k.size(1));
  const In* q_row = rows.q.const_data_ptr<In>() + b * rows.q.stride(0) + h * rows.q.stride(1) +
                    t * rows.q.stride(2);
  const In* k_head =
      rows.k.const_data_ptr<In>() + b * rows.k.stride(0) + key_head * rows.k.stride(1);
  const int64_t q_step = rows.q.stride(3), k_token = rows.k.stride(2), k_step = rows.k.stride(3);
  for (int64_t i = 0; i < width; ++i)
    query[static_cast<size_t>(i)] = static_cast<Sum>(q_row[i * q_step]);
  const int64_t end = std::min(rows.is_causal ? t + 1 : t + rows.window, keys);
  const int64_t begin = std::min(std::max<int64_t>(t + 1 - rows.window, 0), end);
  const int64_t* document =
      rows.documents.defined() ? rows.documents.const_data_ptr<int64_t>() + b * keys : nullptr;
  const Sum* query_data = query.data();
  std::fill(scores.begin(), scores.end(), -std::numeric_limits<Sum>::infinity());
  for (int64_t j = begin; j < end; ++j) {
    if (document != nullptr && document[j] != document[t]) continue;
    const In* key = k_head + j * k_token;
    Sum dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < width; ++i) dot += query_data[i] * static_cast<Sum>(key[i * k_step]);
    Sum score = dot * static_cast<Sum>(rows.scale);
    if (rows.softcap > 0) {
      score = static_cast<Sum>(rows.softcap * std::tanh(static_cast<double>(score) / rows.softcap));
    }
    scores[static_cast<size_t>(j)] = score;
  }
  rows.mask.add_row(b, h, t, begin, end, scores.data());
  return true;
}

/// What one row's scores come to. Sums in double: a row is read once and cheap beside the dot
/// products.
struct RowSums {
  double max = -std::numeric_limits<double>::infinity();
  double log_sum_exp = -std::numeric_limits<double>::infinity();
  double entropy = std::numeric_limits<double>::quiet_NaN();
};

/// sink: one more logit in the denominator, without a key; -inf: none.
template <typename Sum>
RowSums sum_row(const std::vector<Sum>& scores, double sink) {
  RowSums sums;
  for (const Sum s : scores) {
    if (std::isnan(s)) {
      sums.max = sums.log_sum_exp = std::numeric_limits<double>::quiet_NaN();
      return sums;
    }
    sums.max = std::max(sums.max, static_cast<double>(s));
  }
  if (!std::isfinite(sums.max)) {
    // All masked: -inf. A score of +inf has no softmax: NaN.
    sums.log_sum_exp = sums.max > 0 ? std::numeric_limits<double>::quiet_NaN() : sums.max;
    return sums;
  }
  if (std::isnan(sink) || sink == std::numeric_limits<double>::infinity()) {
    sums.log_sum_exp = std::numeric_limits<double>::quiet_NaN();
    return sums;
  }
  const double top = std::max(sums.max, sink);
  double total = 0, weighted = 0;
  const auto add = [&](double score) {
    const double weight = std::exp(score - top);
    total += weight;
    if (weight > 0) weighted += weight * (score - top);
  };
  for (const Sum s : scores) add(static_cast<double>(s));
  add(sink);
  sums.log_sum_exp = top + std::log(total);
  sums.entropy = std::max(0.0, std::log(total) - weighted / total);
  return sums;
}

/// Log-mean-exp and mass of one group of key positions.
template <typename Sum>
void sum_group(const std::vector<Sum>& scores, const int64_t* targets, int64_t count,
               double log_sum_exp, Sum* mass, Sum* score) {
  double top = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < count; ++i)
    top = std::max(top, static_cast<double>(scores[static_cast<size_t>(targets[i])]));
  double total = 0;
  if (std::isfinite(top)) {
    for (int64_t i = 0; i < count; ++i)
      total += std::exp(static_cast<double>(scores[static_cast<size_t>(targets[i])]) - top);
  }
  *score = static_cast<Sum>(total > 0 ? top + std::log(total / static_cast<double>(count)) : top);
  *mass = static_cast<Sum>(total > 0 ? total * std::exp(top - log_sum_exp) : 0.0);
}

void check_positions(const at::Tensor& rows, int64_t queries, const at::Tensor& targets,
                     const at::Tensor& offsets, int64_t keys) {
  const int64_t* t = rows.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < rows.numel(); ++i) {
    TORCH_CHECK(t[i] >= -1 && t[i] < queries, "headscope: sampled row ", t[i], " is outside the ",
                queries, " queries");
  }
  if (!targets.defined()) return;
  const int64_t* position = targets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < targets.numel(); ++i) {
    TORCH_CHECK(position[i] >= 0 && position[i] < keys, "headscope: target ", position[i],
                " is outside the ", keys, " keys");
  }
  const int64_t* offset = offsets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < offsets.numel(); ++i) {
    TORCH_CHECK(offset[i] >= (i == 0 ? 0 : offset[i - 1]) && offset[i] <= targets.numel(),
                "headscope: offsets must ascend within the ", targets.numel(), " targets, got ",
                offset[i], " at ", i);
  }
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_mass(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows_in,
    const at::Tensor& targets_in, const at::Tensor& offsets_in, int64_t groups,
    const AttentionCall& call) {
  const at::Tensor positions = rows_in.contiguous(), targets = targets_in.contiguous(),
                   offsets = offsets_in.contiguous();
  const int64_t batch = q.size(0), heads = q.size(1), keys = k.size(2), sampled = positions.size(1);
  check_positions(positions, q.size(2), targets, offsets, keys);
  const auto options = q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto by_group = [&] { return at::full({batch, heads, sampled, groups}, nan, options); };
  const auto by_row = [&] { return at::full({batch, heads, sampled}, nan, options); };
  at::Tensor mass = by_group(), score = by_group(), entropy = by_row(), max_logit = by_row(),
             log_sum_exp = by_row(), first_mass = by_row();
  if (batch * heads * sampled == 0)
    return {mass, score, entropy, max_logit, log_sum_exp, first_mass};

  const Rows rows(q, k, positions, call);
  const int64_t* target_data = targets.const_data_ptr<int64_t>();
  const int64_t* offset_data = offsets.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, q.scalar_type(), "headscope::attention_mass", [&] {
        using Sum = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
        Sum* mass_data = mass.data_ptr<Sum>();
        Sum* score_data = score.data_ptr<Sum>();
        at::parallel_for(0, batch * heads, 1, [&](int64_t first, int64_t last) {
          std::vector<Sum> query(static_cast<size_t>(q.size(3))), scores(static_cast<size_t>(keys));
          for (int64_t bh = first; bh < last; ++bh) {
            const int64_t b = bh / heads, h = bh % heads;
            for (int64_t r = 0; r < sampled; ++r) {
              if (!score_row<scalar_t, Sum>(rows, b, h, r, query, scores)) continue;
              const RowSums sums = sum_row(scores, rows.sink(h));
              const int64_t out = bh * sampled + r;
              log_sum_exp.data_ptr<Sum>()[out] = static_cast<Sum>(sums.log_sum_exp);
              if (!std::isfinite(sums.log_sum_exp)) continue;
              max_logit.data_ptr<Sum>()[out] = static_cast<Sum>(sums.max);
              entropy.data_ptr<Sum>()[out] = static_cast<Sum>(sums.entropy);
              first_mass.data_ptr<Sum>()[out] =
                  static_cast<Sum>(std::exp(static_cast<double>(scores[0]) - sums.log_sum_exp));
              for (int64_t g = 0; g < groups; ++g) {
                const int64_t* offset = offset_data + (b * sampled + r) * groups + g;
                sum_group(scores, target_data + offset[0], offset[1] - offset[0], sums.log_sum_exp,
                          mass_data + out * groups + g, score_data + out * groups + g);
              }
            }
          }
        });
      });
  return {mass, score, entropy, max_logit, log_sum_exp, first_mass};
}

at::Tensor recompute_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& rows_in, const AttentionCall& call) {
  const at::Tensor positions = rows_in.contiguous();
  const int64_t batch = q.size(0), heads = q.size(1), keys = k.size(2), sampled = positions.size(1),
                width = v.size(3);
  check_positions(positions, q.size(2), at::Tensor(), at::Tensor(), keys);
  at::Tensor out =
      at::full({batch, heads, sampled, width}, std::numeric_limits<double>::quiet_NaN(),
               q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
  if (out.numel() == 0) return out;
  const Rows rows(q, k, positions, call);
  const int64_t group_size = heads / k.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, q.scalar_type(), "headscope::recompute_rows", [&] {
        using Sum = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
        at::parallel_for(0, batch * heads, 1, [&](int64_t first, int64_t last) {
          std::vector<Sum> query(static_cast<size_t>(q.size(3))), scores(static_cast<size_t>(keys));
          std::vector<double> row(static_cast<size_t>(width));
          for (int64_t bh = first; bh < last; ++bh) {
            const int64_t b = bh / heads, h = bh % heads;
            const scalar_t* v_head =
                v.const_data_ptr<scalar_t>() + b * v.stride(0) + (h / group_size) * v.stride(1);
            for (int64_t r = 0; r < sampled; ++r) {
              if (!score_row<scalar_t, Sum>(rows, b, h, r, query, scores)) continue;
              const RowSums sums = sum_row(scores, rows.sink(h));
              if (!std::isfinite(sums.log_sum_exp)) continue;
              std::fill(row.begin(), row.end(), 0.0);
              for (int64_t j = 0; j < keys; ++j) {
                const double weight = std::exp(static_cast<double>(scores[static_cast<size_t>(j)]) -
                                               sums.log_sum_exp);
                if (weight == 0) continue;  // a masked key's value may be anything, NaN included
                for (int64_t i = 0; i < width; ++i) {
                  row[static_cast<size_t>(i)] +=
                      weight * static_cast<double>(v_head[j * v.stride(2) + i * v.stride(3)]);
                }
              }
              Sum* target = out.data_ptr<Sum>() + (bh * sampled + r) * width;
              for (int64_t i = 0; i < width; ++i)
                target[i] = static_cast<Sum>(row[static_cast<size_t>(i)]);
            }
          }
        });
      });
  return out;
}

}  // namespace headscope::cpu
