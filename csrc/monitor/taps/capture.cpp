#include "csrc/monitor/taps/capture.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "csrc/measure/checks.h"
#include "csrc/probe/seen_keys.h"

namespace headscope {
namespace {

// Tokens that choose the shift: enough to bring it within a tenth of a standard deviation of the
// mean. Rounded to z's own type, so that tensor cores take z - shift without loss in two parts.
constexpr int64_t kShiftTokens = 128;

at::Tensor choose_shift(const at::Tensor& z, const std::optional<at::Tensor>& keep,
                        at::ScalarType type) {
  const int64_t tokens = std::min(z.size(2), kShiftTokens);
  const int64_t rows =
      std::clamp<int64_t>(kShiftTokens / std::max<int64_t>(tokens, 1), 1, z.size(0));
  at::Tensor sample = z.narrow(0, 0, rows).narrow(2, 0, tokens).to(type);
  at::Tensor count = at::full({}, static_cast<double>(rows * tokens), sample.options());
  if (keep) {
    // Padding may hold anything, NaN included: left out rather than multiplied by zero.
    const at::Tensor kept =
        keep->narrow(0, 0, rows).narrow(1, 0, tokens).view({rows, 1, tokens, 1});
    sample = at::where(kept, sample, at::zeros({}, sample.options()));
    count = kept.sum().clamp_min(1);
  }
  const at::Tensor mean = sample.sum({0, 2}) / count;
  at::Tensor shift = mean.to(z.scalar_type()).to(type);
  if (z.scalar_type() == at::kBFloat16 && z.is_cpu()) {
    // About zero the CPU multiplies bf16 as they are (add_gram). That costs little where no mean
    // exceeds its standard deviation: moments about zero are at most twice as large.
    const at::Tensor square = sample.square().sum({0, 2}) / count;
    shift.masked_fill_((2 * mean.square() <= square).all(1, /*keepdim=*/true), 0);
  }
  return shift;
}

}  // namespace

void capture_spectrum(SpectrumCapture& spectrum, const at::Tensor& z,
                      const std::optional<at::Tensor>& keep) {
  if (z.numel() == 0) return;
  if (spectrum.empty()) {
    const at::ScalarType type = z.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto options = z.options().dtype(type);
    spectrum.gram = at::zeros({z.size(1), z.size(3), z.size(3)}, options);
    spectrum.sum = at::zeros({z.size(1), z.size(3)}, options);
    spectrum.count = at::zeros({1}, options.dtype(at::kLong));
    spectrum.shift = choose_shift(z, keep, type);
  }
  accumulate_gram_(spectrum.gram, spectrum.sum, spectrum.count, z, spectrum.shift, keep);
}

void check_attention_call(const TappedCall& tapped) {
  const auto& [layer, q, k, v, z, call] = tapped;
  TORCH_CHECK(layer >= 0, "layer must not be negative, got ", layer);
  TORCH_CHECK(q.defined() && k.defined() && v.defined() && z.defined(), "layer ", layer,
              ": q, k, v and z must be defined");
  TORCH_CHECK(!q.is_nested() && !k.is_nested() && !v.is_nested() && !z.is_nested(), "layer ", layer,
              ": nested tensors are not measured; pass padded [B, H, T, D] with keep, or packed "
              "rows with documents");
  TORCH_CHECK(measures_on(z.device().type()), "layer ", layer, ": this build measures tensors on ",
              measures_on(at::kCUDA) ? "the CPU and on CUDA devices" : "the CPU", ", got ",
              z.device());
  TORCH_CHECK(q.device() == z.device() && k.device() == z.device() && v.device() == z.device(),
              "layer ", layer, ": q, k, v and z must be on one device, got ", q.device(), ", ",
              k.device(), ", ", v.device(), " and ", z.device());
  for (const std::optional<at::Tensor>* told :
       {&call.bias, &call.keep, &call.documents, &call.sinks}) {
    TORCH_CHECK(!*told || (*told)->device() == z.device(), "layer ", layer,
                ": the call's tensors must be on the device of z, ", z.device(), ", but one is on ",
                (*told)->device());
  }
  TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && z.dim() == 4, "layer ", layer,
              ": q, k, v and z must be [B, H, T, D], got ", q.sizes(), ", ", k.sizes(), ", ",
              v.sizes(), ", ", z.sizes());
  TORCH_CHECK(q.size(2) == k.size(2), "layer ", layer,
              ": cross-attention is not measured, nor decoding with a key-value cache: q has Tq = ",
              q.size(2), " tokens and k has Tk = ", k.size(2));
  TORCH_CHECK(v.size(0) == k.size(0) && v.size(1) == k.size(1) && v.size(2) == k.size(2), "layer ",
              layer, ": k ", k.sizes(), " and v ", v.sizes(), " must agree in B, Hkv and T");
  TORCH_CHECK(z.size(0) == q.size(0) && z.size(1) == q.size(1) && z.size(2) == q.size(2) &&
                  z.size(3) == v.size(3),
              "layer ", layer, ": z ", z.sizes(), " must have the batch, heads and tokens of q ",
              q.sizes(), " and the width of v ", v.sizes(),
              "; pass it before heads are merged, as [B, H, T, D]");
  TORCH_CHECK(!call.keep || (call.keep->sizes() == at::IntArrayRef({q.size(0), q.size(2)}) &&
                             call.keep->scalar_type() == at::kBool),
              "layer ", layer, ": keep must be bool [B, T] = [", q.size(0), ", ", q.size(2), "]");
  try {
    measure::check_attention(q, k, call);
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, "layer ", layer, ": ", error.what_without_backtrace());
  }
}

size_t plan_for(Capture& capture, size_t micro, int64_t layer, const at::Tensor& q,
                const AttentionCall& call, const at::Tensor& ids, std::span<const Pattern> patterns,
                int64_t sampled, uint64_t seed) {
  const int64_t batch = q.size(0), tokens = q.size(2);
  if (micro >= capture.micro_batches.size()) {
    capture.micro_batches.push_back({tokens, {capture.plans.size()}});
    capture.plans.push_back(plan_train(batch, tokens, ids, patterns, sampled, seed, call));
    capture.context = tokens;
    return capture.plans.size() - 1;
  }
  const int64_t others = capture.micro_batches[micro].tokens;
  std::vector<size_t>& known = capture.micro_batches[micro].plans;
  const at::Tensor rows = capture.plans[known.front()].rows;
  TORCH_CHECK(rows.size(0) == batch && others == tokens, "layer ", layer, " saw [B, T] = [", batch,
              ", ", tokens, "] where another layer saw [", rows.size(0), ", ", others,
              "] in the same micro-batch");
  at::Tensor own = rows;  // but for queries that are padding in this layer alone
  if (call.keep)
    own = rows.masked_fill(call.keep->to(at::kCPU).gather(1, rows.clamp_min(0)).logical_not(), -1);
  const at::Tensor seen = seen_keys(own, tokens, call);
  for (const size_t i : known) {
    const TrainPlan& other = capture.plans[i];
    if (seen.defined() == other.seen.defined() && (!seen.defined() || seen.equal(other.seen)) &&
        own.equal(other.rows))
      return i;
  }
  known.push_back(capture.plans.size());
  capture.plans.push_back(plan_rows(own, tokens, ids, patterns, seen));
  return known.back();
}

}  // namespace headscope
