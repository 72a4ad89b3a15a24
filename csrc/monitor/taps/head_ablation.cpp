#include "csrc/monitor/taps/head_ablation.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>

#include "csrc/monitor/edge/host_guard.h"

namespace headscope {

void HeadAblation::choose(Doing doing, const std::vector<HeadId>& heads) {
  doing_ = doing;
  chosen_.clear();
  for (const HeadId& id : heads) chosen_[id.layer].push_back(id.head);
  done_.clear();
  problem_.clear();
}

void HeadAblation::learn_means() { choose(Doing::kLearnMeans, {}); }

void HeadAblation::learn_rows(const std::vector<HeadId>& heads) {
  choose(Doing::kLearnRows, heads);
  others_.clear();
}

void HeadAblation::replace(const std::vector<HeadId>& heads, const at::Tensor& rows,
                           const at::Tensor& queries) {
  choose(Doing::kReplace, heads);
  rows_ = rows.size(0);
  tokens_ = rows.size(1);
  queries_ = queries;
}

at::Tensor HeadAblation::observe(int64_t layer, const at::Tensor& z) {
  const auto chosen = chosen_.find(layer);
  if (z.dim() == 4) heads_in_[layer] = z.size(1);
  if (doing_ == Doing::kLearnMeans) {
    const QuietScope quiet;
    add_to_means(layer, z);
    return z;
  }
  if (chosen == chosen_.end() || !problem_.empty()) return z;
  problem_ = misfit(layer, z);
  if (!problem_.empty()) return z;
  const QuietScope quiet;
  at::Tensor given = z;
  if (doing_ == Doing::kReplace) {
    given = replaced(layer, chosen->second, z);
  } else {
    const at::Tensor heads = at::tensor(chosen->second, at::kLong).to(z.device());
    others_[layer] = z.detach().index_select(1, heads);
  }
  done_.insert(layer);
  return given;
}

void HeadAblation::add_to_means(int64_t layer, const at::Tensor& z) {
  if (z.dim() != 4) return;
  const at::Tensor wide = z.detach().to(at::kDouble);
  Learnt& learnt = learnt_[layer];
  const at::Tensor sum = wide.sum({0, 2}), squares = wide.square().sum({0, 2, 3});
  learnt.sum = learnt.count == 0 ? sum : learnt.sum + sum;
  learnt.squares = learnt.count == 0 ? squares : learnt.squares + squares;
  learnt.count += z.size(0) * z.size(2);
}

std::string HeadAblation::misfit(int64_t layer, const at::Tensor& z) const {
  const std::string of = "layer " + std::to_string(layer);
  if (z.dim() != 4) return c10::str(of, " gave z ", z.sizes(), ", and [B, H, T, D] is needed");
  for (const int64_t head : chosen_.at(layer))
    if (head >= z.size(1)) return c10::str(of, " has ", z.size(1), " heads, none is ", head);
  if (doing_ == Doing::kLearnRows)
    return done_.contains(layer) ? of + " reported twice in a forward, so that its rows are not "
                                        "known; replace by zero or mean"
                                 : std::string();
  const bool by_row =
      replacement_ == Replacement::kResample || positions_ == AblatedPositions::kQuery;
  if (by_row && (z.size(0) != rows_ || z.size(2) != tokens_))
    return c10::str(of, " gave z ", z.sizes(), " for tokens [", rows_, ", ", tokens_,
                    "], so that its rows are not known; let forward run them as they are given, or "
                    "replace by zero or mean at all positions");
  if (replacement_ == Replacement::kMean && !learnt_.contains(layer))
    return of + " did not report when the means were taken";
  if (replacement_ == Replacement::kResample &&
      (!others_.contains(layer) || others_.at(layer).size(0) != rows_ ||
       others_.at(layer).size(2) != tokens_))
    return of + " did not report the rows that its outputs are taken from";
  return {};
}

at::Tensor HeadAblation::replaced(int64_t layer, const std::vector<int64_t>& heads,
                                  const at::Tensor& z) const {
  const at::NoGradGuard no_grad;
  at::Tensor copy = z.clone(), row, position;
  if (positions_ == AblatedPositions::kQuery) {
    row = at::arange(rows_, z.options().dtype(at::kLong)).repeat_interleave(queries_.size(1));
    position = queries_.to(z.device()).reshape({-1});
  }
  for (size_t i = 0; i < heads.size(); ++i) {
    at::Tensor own = copy.select(1, heads[i]);  // [B, T, D]
    at::Tensor value;
    if (replacement_ == Replacement::kZero) {
      value = at::zeros({1}, z.options());
    } else if (replacement_ == Replacement::kMean) {
      const Learnt& learnt = learnt_.at(layer);
      value = (learnt.sum[heads[i]] / static_cast<double>(learnt.count)).to(z.options());
    } else {
      value = others_.at(layer).select(1, static_cast<int64_t>(i));
      if (position.defined()) value = value.index({row, position});
    }
    if (position.defined())
      own.index_put_({row, position}, value);
    else
      own.copy_(value);
  }
  return copy;
}

void HeadAblation::check() const {
  std::string what = problem_;
  for (const auto& [layer, heads] : chosen_)
    if (what.empty() && !done_.contains(layer))
      what = "layer " + std::to_string(layer) +
             " did not report: does forward run it, and through Monitor::observe (or as "
             "attach_zero_edit learnt it)?";
  if (!what.empty()) throw std::runtime_error("headscope ablation: " + what);
}

double HeadAblation::norm(HeadId id) const {
  const auto learnt = learnt_.find(id.layer);
  if (learnt == learnt_.end() || id.head >= learnt->second.squares.size(0)) return kNaN;
  return std::sqrt(learnt->second.squares[id.head].item<double>() /
                   static_cast<double>(learnt->second.count));
}

}  // namespace headscope
