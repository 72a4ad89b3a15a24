#include "csrc/measure/composed_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "csrc/measure/checks.h"

namespace headscope::measure {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

at::Tensor constant(double value, const at::Tensor& like) {
  return at::full({}, value, like.options());
}

/// Rows of x [B, H, T, D] at positions [B, R]: [B, H, R, D].
at::Tensor rows_of(const at::Tensor& x, const at::Tensor& positions) {
  const at::Tensor index = positions.view({x.size(0), 1, positions.size(1), 1})
                               .expand({x.size(0), x.size(1), positions.size(1), x.size(3)});
  return x.gather(2, index);
}

/// One layer's sampled rows, all heads: scores with -inf where a key is hidden.
struct Rows {
  Rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows, const AttentionCall& call)
      : used(rows.ge(0).logical_and(rows.lt(q.size(2))).unsqueeze(1)) {
    const at::ScalarType type = sum_type(q);
    const int64_t batch = q.size(0), heads = q.size(1), key_heads = k.size(1), keys = k.size(2),
                  sampled = rows.size(1);
    position = rows.clamp(0, std::max<int64_t>(q.size(2) - 1, 0));
    // Query heads that share keys multiply them together; the keys are never repeated.
    const at::Tensor query =
        rows_of(q, position)
            .to(type)
            .reshape({batch, key_heads, (heads / key_heads) * sampled, q.size(3)});
    scores = at::matmul(query, k.to(type).transpose(2, 3)).reshape({batch, heads, sampled, keys});
    scores = scores * call.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
    if (call.softcap > 0) scores = at::tanh(scores / call.softcap) * call.softcap;
    if (call.bias) add_bias(*call.bias, q, keys);
    hide(call, keys, std::max<int64_t>(1, std::max(keys, q.size(2))));
    sink = call.sinks ? call.sinks->to(type).view({1, -1, 1}) : constant(-kInfinity, scores);
  }

  void add_bias(const at::Tensor& bias, const at::Tensor& q, int64_t keys) {
    const at::Tensor all = bias.expand({q.size(0), q.size(1), q.size(2), keys});
    const at::Tensor own = rows_of(all, position);
    scores = own.scalar_type() == at::kBool ? at::where(own, scores, constant(-kInfinity, scores))
                                            : scores + own.to(scores.scalar_type());
  }

  void hide(const AttentionCall& call, int64_t keys, int64_t tokens) {
    const at::Tensor key = at::arange(keys, position.options()), query = position.unsqueeze(2);
    at::Tensor seen;  // [B, R, Tk]
    const auto require = [&seen](const at::Tensor& more) {
      seen = seen.defined() ? seen.logical_and(more) : more;
    };
    if (call.is_causal) require(key.le(query));
    if (call.window > 0) {
      const int64_t window = std::min(call.window, tokens);  // the largest one must not overflow
      require(key.gt(query - window));
      require(key.lt(query + window));
    }
    if (call.documents)
      require(call.documents->unsqueeze(1).eq(call.documents->gather(1, position).unsqueeze(2)));
    if (seen.defined()) scores = at::where(seen.unsqueeze(1), scores, constant(-kInfinity, scores));
  }

  at::Tensor used;      // [B, 1, R]
  at::Tensor position;  // [B, R], unused rows at 0
  at::Tensor scores;    // [B, Hq, R, Tk]
  at::Tensor sink;      // [1, Hq, 1]; -inf: none
};

/// ln sum exp over the last dimension; -inf for nothing but -inf, NaN for NaN and +inf.
at::Tensor log_sum_exp_of(const at::Tensor& scores) {
  const at::Tensor sum = at::logsumexp(scores, -1);
  return at::where(sum.eq(kInfinity), constant(kNaN, scores), sum);
}

/// Mass and log-mean-exp of every target group, [B, Hq, R, G]. total: ln of the rows' denominators.
std::pair<at::Tensor, at::Tensor> group_sums(const Rows& rows, const at::Tensor& total,
                                             const at::Tensor& targets, const at::Tensor& offsets,
                                             int64_t groups) {
  const int64_t batch = total.size(0), heads = total.size(1), sampled = total.size(2),
                all_groups = batch * sampled * groups;
  const auto options = total.options();
  if (groups == 0) {
    const at::Tensor none = at::empty({batch, heads, sampled, 0}, options);
    return {none, none};
  }
  // All groups side by side, [n, Hq]. What lies outside the offsets belongs to no group.
  const at::Tensor place = at::arange(targets.numel(), targets.options());
  const at::Tensor group = at::searchsorted(offsets.narrow(0, 1, all_groups), place,
                                            /*out_int32=*/false, /*right=*/true)
                               .clamp(0, all_groups - 1);
  const at::Tensor within = place.ge(offsets[0]).logical_and(place.lt(offsets[all_groups]));
  const at::Tensor row = at::div(group, groups, "floor");
  const at::Tensor key = targets.clamp(0, rows.scores.size(3) - 1);
  const at::Tensor of_targets =
      rows.scores.permute({0, 2, 3, 1})
          .index({at::div(row, sampled, "floor"), row.remainder(sampled), key});
  const at::Tensor picked = at::where(within.unsqueeze(1), of_targets, constant(-kInfinity, total));
  const at::Tensor top = at::full({all_groups, heads}, -kInfinity, options)
                             .index_reduce(0, group, picked, "amax", /*include_self=*/true);
  const at::Tensor base = at::where(top.isfinite(), top, at::zeros({}, options));
  const at::Tensor sums = at::zeros({all_groups, heads}, options)
                              .index_add(0, group, at::exp(picked - base.index_select(0, group)));
  const at::Tensor sizes = offsets.diff().to(total.scalar_type()).unsqueeze(1);
  const auto by_head = [&](const at::Tensor& grouped) {
    return grouped.view({batch, sampled, groups, heads}).permute({0, 3, 1, 2});
  };
  return {by_head(sums) * at::exp(by_head(base) - total.unsqueeze(-1)),
          by_head(at::where(sums.gt(0), base + at::log(sums / sizes), top))};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> composed_mass(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows_in, const at::Tensor& targets,
    const at::Tensor& offsets, int64_t groups, const AttentionCall& call) {
  const int64_t batch = q.size(0), heads = q.size(1), sampled = rows_in.size(1), keys = k.size(2);
  const auto options = q.options().dtype(sum_type(q));
  if (batch * heads * sampled == 0 || keys == 0) {
    const auto by_row = [&] { return at::full({batch, heads, sampled}, kNaN, options); };
    const auto by_group = [&] { return at::full({batch, heads, sampled, groups}, kNaN, options); };
    return {by_group(), by_group(), by_row(), by_row(), by_row(), by_row()};
  }
  const Rows rows(q, k, rows_in, call);
  const at::Tensor nan = constant(kNaN, rows.scores);
  const at::Tensor of_keys = log_sum_exp_of(rows.scores);
  // A row without a key to see says so whatever its sink.
  const at::Tensor with_sink = at::logaddexp(of_keys, rows.sink);
  const at::Tensor any_key = at::where(of_keys.eq(-kInfinity), of_keys, with_sink);
  const at::Tensor total = at::where(any_key.eq(kInfinity), nan, any_key);
  const at::Tensor measured = rows.used.logical_and(total.isfinite());

  const at::Tensor weight = at::exp(rows.scores - total.unsqueeze(-1));
  const at::Tensor share = at::exp(rows.sink - total);  // of the sink
  const auto weighed = [](const at::Tensor& p, const at::Tensor& log_p) {
    return at::where(p.gt(0), p * log_p, at::zeros({}, p.options()));
  };
  const at::Tensor entropy = -(weighed(weight, rows.scores - total.unsqueeze(-1)).sum(-1) +
                               weighed(share, rows.sink - total));

  const auto [mass, score] = group_sums(rows, total, targets, offsets, groups);
  const auto where_measured = [&](const at::Tensor& figure) {
    return at::where(figure.dim() == 4 ? measured.unsqueeze(-1) : measured, figure, nan)
        .contiguous();
  };
  return {where_measured(mass),
          where_measured(score),
          where_measured(entropy.clamp_min(0)),
          where_measured(rows.scores.amax(-1)),
          at::where(rows.used, total, nan).contiguous(),
          where_measured(weight.select(-1, 0))};
}

at::Tensor composed_output(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& rows_in, const AttentionCall& call) {
  const int64_t batch = q.size(0), heads = q.size(1), key_heads = k.size(1),
                sampled = rows_in.size(1), width = v.size(3);
  const auto options = q.options().dtype(sum_type(q));
  const at::Tensor out = at::full({batch, heads, sampled, width}, kNaN, options);
  if (out.numel() == 0 || k.size(2) == 0) return out;
  const Rows rows(q, k, rows_in, call);
  const at::Tensor of_keys = log_sum_exp_of(rows.scores);
  const at::Tensor total =
      at::where(of_keys.eq(-kInfinity), of_keys, at::logaddexp(of_keys, rows.sink));
  const at::Tensor weight = at::exp(rows.scores - total.unsqueeze(-1));
  // A hidden key's value may be anything, NaN included; where any head sees it, it counts.
  const at::Tensor values = v.to(options.dtype());
  const at::Tensor clean = at::where(values.isfinite(), values, at::zeros({}, values.options()));
  const auto product = [&](const at::Tensor& x) {
    return at::matmul(weight.reshape({batch, key_heads, (heads / key_heads) * sampled, k.size(2)}),
                      x)
        .reshape({batch, heads, sampled, width});
  };
  const at::Tensor touched =
      at::matmul(weight.gt(0)
                     .to(values.scalar_type())
                     .reshape({batch, key_heads, (heads / key_heads) * sampled, k.size(2)}),
                 values.isfinite().logical_not().to(values.scalar_type()))
          .reshape({batch, heads, sampled, width})
          .gt(0);
  const at::Tensor measured =
      rows.used.logical_and(total.isfinite()).unsqueeze(-1).logical_and(touched.logical_not());
  return at::where(measured, product(clean), out);
}

}  // namespace headscope::measure
