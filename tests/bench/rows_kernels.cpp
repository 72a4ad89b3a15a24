#include <ATen/ATen.h>

#include <stdexcept>

#include "headscope/measure.h"
#include "headscope/spectrum.h"
#include "tests/bench/runner.h"
#include "tests/support/reference.h"

namespace headscope::bench {
namespace {

void require_close(const at::Tensor& got, const at::Tensor& want, double relative,
                   const char* what) {
  const double error = (got.to(at::kDouble) - want.to(at::kDouble)).abs().max().item<double>();
  if (!(error <= relative * want.abs().max().item<double>())) {
    throw std::runtime_error(std::string(what) + " is wrong by " + std::to_string(error) +
                             ": not timed");
  }
}

std::string ratio_text(const char* what, double seconds) {
  return std::string(what) + " " + std::to_string(1e3 * seconds) + " ms";
}

double sgemm_rate() {
  const at::Tensor a = at::randn({1024, 1024}), b = at::randn({1024, 1024});
  at::Tensor out = at::empty({1024, 1024});
  const double seconds = time_interleaved({[&] { at::mm_out(out, a, b); }}, 9)[0].best;
  return 2.0 * 1024 * 1024 * 1024 / seconds;
}

at::Tensor gram_of(const at::Tensor& z) {
  at::Tensor gram = at::zeros({z.size(1), z.size(3), z.size(3)}),
             sum = at::zeros({z.size(1), z.size(3)});
  at::Tensor count = at::zeros({1}, at::kLong);
  accumulate_gram_(gram, sum, count, z, at::zeros({z.size(1), z.size(3)}));
  return gram;
}

at::Tensor gram_bmm(const at::Tensor& z) {
  const at::Tensor x = z.transpose(0, 1).reshape({z.size(1), -1, z.size(3)});
  return at::bmm(x.transpose(1, 2), x);
}

void gram_rows(const Emit& emit) {
  const double roof = sgemm_rate();
  for (const int64_t width : {64, 128}) {
    const at::Tensor z = at::randn({4, 1024, 12, width}).transpose(1, 2);
    require_close(gram_of(z), gram_bmm(z.to(at::kDouble)), 1e-5, "Gram");
    const auto einsum = [&] { at::einsum("bhti,bhtj->hij", {z, z}); };
    const auto times = time_interleaved({[&] { gram_of(z); }, [&] { gram_bmm(z); }, einsum});
    const double flop = 2.0 * 4 * 1024 * 12 * static_cast<double>(width * width);
    const std::string suffix = ", d = " + std::to_string(width);
    Row rate{"1", "Gram fp32 against the sgemm rate" + suffix};
    rate.must = width == 64 ? 0.9 : 1.2;
    rate.aim = width == 64 ? 1.2 : 1.5;
    rate.measured = flop / times[0].best / roof;
    rate.unit = "x";
    rate.spread = times[0].spread;
    rate.roof = "sgemm " + std::to_string(roof * 1e-9) + " GF/s";
    emit(rate);
    Row view{"2", "Gram fp32 of the [B,T,H,d] view" + suffix};
    view.must = 1.3;
    view.aim = 1.7;
    view.measured = std::min(times[1].best, times[2].best) / times[0].best;
    view.unit = "x";
    view.spread = times[0].spread;
    view.roof = ratio_text("best of bmm and einsum", std::min(times[1].best, times[2].best));
    emit(view);
  }
  const at::Tensor z = at::randn({4, 1024, 12, 64}).to(at::kBFloat16).transpose(1, 2);
  require_close(gram_of(z), gram_bmm(z.to(at::kDouble)), 1e-5, "Gram of bf16");
  const auto times = time_interleaved(
      {[&] { gram_of(z); }, [&] { gram_bmm(z.to(at::kFloat)); }, [&] { gram_bmm(z); }});
  Row row{"3", "Gram bf16 -> fp32"};
  row.must = 1.8;
  row.aim = 3;
  row.measured = std::min(times[1].best, times[2].best) / times[0].best;
  row.unit = "x";
  row.spread = times[0].spread;
  row.roof = ratio_text("best of cast + bmm and bf16 bmm", std::min(times[1].best, times[2].best));
  emit(row);
}

void eigenvalue_rows(const Emit& emit) {
  for (const auto& [count, n] : {std::pair<int64_t, int64_t>{144, 64}, {256, 128}}) {
    const at::Tensor x = at::randn({count, 2 * n, n});
    const at::Tensor matrices = at::bmm(x.transpose(1, 2), x);
    const at::Tensor want = at::linalg_eigvalsh(matrices.to(at::kDouble));
    require_close(symmetric_eigenvalues(matrices), want, 1e-9, "eigenvalues");
    const auto times = time_interleaved(
        {[&] { symmetric_eigenvalues(matrices); }, [&] { at::linalg_eigvalsh(matrices); }});
    Row row{"4", "eigenvalues, " + std::to_string(count) + " x " + std::to_string(n) + "^2"};
    row.must = 4;
    row.aim = 7;
    row.measured = times[1].best / times[0].best;
    row.unit = "x";
    row.spread = times[0].spread;
    row.roof = ratio_text("batched eigvalsh f32", times[1].best);
    emit(row);
  }
  Row accuracy{"6", "eigenvalue error, n = 64, of the largest"};
  accuracy.must = 2e-6;
  accuracy.aim = 1e-6;
  accuracy.smaller_is_better = true;
  const at::Tensor x = at::randn({128, 64}, at::kDouble);
  const at::Tensor gram = x.t().matmul(x).to(at::kFloat);
  const auto want = reference::eigenvalues(gram);
  const at::Tensor got = symmetric_eigenvalues(gram);
  accuracy.measured = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    accuracy.measured =
        std::max(accuracy.measured,
                 std::abs(got[static_cast<int64_t>(i)].item<double>() - want[i]) / want.back());
  }
  accuracy.unit = "relative error";
  accuracy.roof = "Jacobi in f64";
  emit(accuracy);
}

void attention_rows(const Emit& emit) {
  const int64_t batch = 4, heads = 12, tokens = 1024, width = 64;
  const at::Tensor q = at::randn({batch, heads, tokens, width}),
                   k = at::randn({batch, heads, tokens, width});
  const at::Tensor last = at::full({batch, 1}, tokens - 1, at::kLong);
  const at::Tensor targets = at::full({batch}, 7, at::kLong),
                   offsets = at::arange(batch + 1, at::kLong);
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  const auto torch_row = [&] {
    return at::softmax(at::matmul(q.narrow(2, tokens - 1, 1), k.transpose(2, 3)) * scale, -1);
  };
  require_close(attention_mass(q, k, last, targets, offsets, 1).mass.flatten(),
                torch_row().select(3, 7).flatten(), 1e-4, "last row");
  double checksum = 0;
  const auto ours = [&] { attention_mass(q, k, last, targets, offsets, 1); };
  const auto stream = [&] { checksum += k.sum().item<double>(); };
  const auto full = [&] { at::softmax(at::matmul(q, k.transpose(2, 3)) * scale, -1); };
  const auto times = time_interleaved({ours, stream, torch_row});
  const auto slow = time_interleaved({ours, full}, 7);
  const auto add = [&](const char* name, double must, double aim, double measured,
                       const std::string& roof) {
    Row row{"7", name};
    row.must = must;
    row.aim = aim;
    row.measured = measured;
    row.unit = "x";
    row.spread = times[0].spread;
    row.roof = roof;
    emit(row);
  };
  add("last-row attention against reading K once", 0.5, 0.65, times[1].best / times[0].best,
      ratio_text("sum of K", times[1].best));
  add("last-row attention against torch's own last row", 1.3, 1.9, times[2].best / times[0].best,
      ratio_text("matmul + softmax of one row", times[2].best));
  add("last-row attention against full softmax", 150, 300, slow[1].best / slow[0].best,
      ratio_text("softmax(QK^T)", slow[1].best));
}

}  // namespace

void kernel_rows(const Emit& emit) {
  gram_rows(emit);
  eigenvalue_rows(emit);
  attention_rows(emit);
}

}  // namespace headscope::bench
