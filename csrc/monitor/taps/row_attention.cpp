#include "csrc/monitor/taps/row_attention.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <utility>

#include "csrc/monitor/edge/host_guard.h"
#include "csrc/probe/seen_keys.h"

namespace headscope {

RowAttention::RowAttention(at::Tensor queries, int64_t context)
    : queries_(std::move(queries)), context_(context) {}

void RowAttention::expect(int64_t begin, int64_t count, bool random) {
  begin_ = begin;
  count_ = count;
  random_ = random;
  done_.clear();
}

void RowAttention::take(const TappedCall& tapped) {
  if (!problem_.empty() || tapped.empty() || !done_.insert(tapped.layer).second) return;
  try {
    const QuietScope quiet;
    check_attention_call(tapped);
    keep(tapped);
  } catch (const std::exception& error) {
    problem_ = error.what();
  }
}

void RowAttention::keep(const TappedCall& tapped) {
  const auto& [layer, q, k, v, z, call] = tapped;
  TORCH_CHECK(z.size(0) == count_ && z.size(2) == context_, "layer ", layer,
              ": the screen ran tokens [", count_, ", ", context_, "] but attention saw [B, T] = [",
              z.size(0), ", ", z.size(2), "]; forward must run all tokens of each row at once");
  const at::Tensor rows = queries_.narrow(0, begin_, count_).contiguous();
  const int64_t heads = z.size(1), asked = rows.size(1);
  const at::Tensor at_query = z.gather(
      2, rows.to(z.device()).view({count_, 1, asked, 1}).expand({count_, heads, asked, z.size(3)}));
  LayerCapture& spectra = spectra_.layers[layer];
  spectra.type = z.scalar_type();
  capture_spectrum(random_ ? spectra.null_spectrum : spectra.spectrum, at_query, std::nullopt);
  if (random_) return;

  // Every key is a group of its own: the row of the attention matrix.
  const at::Tensor keys = at::arange(context_, at::kLong).repeat({count_ * asked});
  const at::Tensor offsets = at::arange(count_ * asked * context_ + 1, at::kLong);
  const AttentionRows own = attention_mass(q, k, rows, keys, offsets, context_, call);
  Layer& kept = layers_[layer];
  const int64_t all = queries_.numel();
  if (!kept.weights.defined()) kept.weights = at::zeros({heads, all, context_}, at::kFloat);
  TORCH_CHECK(kept.weights.size(0) == heads, "layer ", layer, " has ", heads,
              " heads where it had ", kept.weights.size(0));
  kept.weights.narrow(1, begin_ * asked, count_ * asked)
      .copy_(own.mass.permute({1, 0, 2, 3}).reshape({heads, count_ * asked, context_}));
  AttentionCall in_screen = call;
  in_screen.keep = std::nullopt;  // rows have no padding, whatever their tokens look like
  const at::Tensor seen = seen_keys(rows, context_, in_screen);
  if (!seen.defined()) return;
  if (!kept.seen.defined()) kept.seen = at::ones({all, context_}, at::kBool);
  kept.seen.narrow(0, begin_ * asked, count_ * asked)
      .copy_(seen.reshape({count_ * asked, context_}));
}

void RowAttention::check() const {
  std::string what = problem_;
  for (const auto& [layer, own] : layers_)
    if (what.empty() && !done_.contains(layer))
      what = "layer " + std::to_string(layer) + " reported in some forwards only";
  if (what.empty() && layers_.empty())
    what =
        "no layer reported during forward: does it run layers that call observe(), or is "
        "attach_zero_edit missing?";
  if (!what.empty()) throw std::runtime_error("headscope screen: " + what);
}

}  // namespace headscope
