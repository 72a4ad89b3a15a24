#include <ATen/ATen.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/version.h>

#include <stdexcept>

#include "csrc/measure/checks.h"
#include "csrc/measure/cpu/entry_points.h"
#include "csrc/measure/device.h"
#ifdef HEADSCOPE_CUDA
#include "csrc/measure/cuda/device.h"
#include "csrc/measure/cuda/entry_points.h"
#endif
#include "csrc/measure/process_check.h"
#include "csrc/measure/registration.h"
#include "headscope/measure.h"

namespace headscope {
namespace {

using measure::OptionalTensor;
using RowTensors =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

AttentionCall call_of(const OptionalTensor& mask, bool is_causal, std::optional<double> scale,
                      double softcap, int64_t window, const OptionalTensor& documents,
                      const OptionalTensor& sinks) {
  return {.bias = mask,
          .is_causal = is_causal,
          .scale = scale,
          .softcap = softcap,
          .window = window,
          .documents = documents,
          .sinks = sinks};
}

// The kernels of one kind of device.

#ifndef HEADSCOPE_EMULATED
struct Cpu {
  static constexpr auto gram = cpu::accumulate_gram_;
  static constexpr auto mass = cpu::attention_mass;
  static constexpr auto rows = cpu::recompute_rows;
  static at::Tensor eigenvalues(const at::Tensor& matrices) {
    return cpu::symmetric_eigenvalues(matrices);
  }
};
#endif

#ifdef HEADSCOPE_CUDA
struct Cuda {
  static constexpr auto gram = cuda::accumulate_gram_;
  static constexpr auto mass = cuda::attention_mass;
  static constexpr auto rows = cuda::recompute_rows;
  static constexpr auto eigenvalues = cuda::symmetric_eigenvalues;
};
#endif

const at::Tensor* given(const OptionalTensor& tensor) { return tensor ? &*tensor : nullptr; }

// Entry points of a device: the checks, then the kernel.

template <typename Device>
void gram_on(at::Tensor& gram, at::Tensor& sum, at::Tensor& count, const at::Tensor& z,
             const at::Tensor& shift, const OptionalTensor& keep) {
  measure::check_gram(gram, sum, count, z, shift, keep);
  measure::check_device(z, {&gram, &sum, &count, &shift, given(keep)});
  Device::gram(gram, sum, count, z, shift, keep);
}

template <typename Device>
RowTensors mass_on(const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows,
                   const at::Tensor& targets, const at::Tensor& offsets, int64_t groups,
                   const OptionalTensor& mask, bool is_causal, std::optional<double> scale,
                   double softcap, int64_t window, const OptionalTensor& documents,
                   const OptionalTensor& sinks) {
  const AttentionCall call = call_of(mask, is_causal, scale, softcap, window, documents, sinks);
  measure::check_attention(q, k, call);
  measure::check_rows(q, rows);
  measure::check_targets(rows, targets, offsets, groups);
  measure::check_device(q, {&k, given(mask), given(documents), given(sinks)});
  return Device::mass(q, k, rows, targets, offsets, groups, call);
}

template <typename Device>
at::Tensor rows_on(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const at::Tensor& rows, const OptionalTensor& mask, bool is_causal,
                   std::optional<double> scale, double softcap, int64_t window,
                   const OptionalTensor& documents, const OptionalTensor& sinks) {
  const AttentionCall call = call_of(mask, is_causal, scale, softcap, window, documents, sinks);
  measure::check_attention(q, k, call);
  measure::check_rows(q, rows);
  measure::check_values(q, k, v);
  measure::check_device(q, {&k, &v, given(mask), given(documents), given(sinks)});
  return Device::rows(q, k, v, rows, call);
}

template <typename Device>
at::Tensor eigenvalues_on(const at::Tensor& matrices) {
  measure::check_matrices(matrices);
  return Device::eigenvalues(matrices);
}

// Fake implementations: shapes and dtypes only.

void gram_meta(at::Tensor& gram, at::Tensor& sum, at::Tensor& count, const at::Tensor& z,
               const at::Tensor& shift, const OptionalTensor& keep) {
  measure::check_gram(gram, sum, count, z, shift, keep);
}

RowTensors mass_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows,
                     const at::Tensor& targets, const at::Tensor& offsets, int64_t groups,
                     const OptionalTensor& mask, bool is_causal, std::optional<double> scale,
                     double softcap, int64_t window, const OptionalTensor& documents,
                     const OptionalTensor& sinks) {
  measure::check_attention(q, k,
                           call_of(mask, is_causal, scale, softcap, window, documents, sinks));
  measure::check_rows(q, rows);
  measure::check_targets(rows, targets, offsets, groups);
  const auto options = q.options().dtype(measure::sum_type(q));
  const int64_t batch = q.size(0), heads = q.size(1), sampled = rows.size(1);
  const auto by_group = [&] { return at::empty({batch, heads, sampled, groups}, options); };
  const auto by_row = [&] { return at::empty({batch, heads, sampled}, options); };
  return {by_group(), by_group(), by_row(), by_row(), by_row(), by_row()};
}

at::Tensor rows_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& rows, const OptionalTensor& mask, bool is_causal,
                     std::optional<double> scale, double softcap, int64_t window,
                     const OptionalTensor& documents, const OptionalTensor& sinks) {
  measure::check_attention(q, k,
                           call_of(mask, is_causal, scale, softcap, window, documents, sinks));
  measure::check_rows(q, rows);
  measure::check_values(q, k, v);
  return at::empty({q.size(0), q.size(1), rows.size(1), v.size(3)},
                   q.options().dtype(measure::sum_type(q)));
}

at::Tensor eigenvalues_meta(const at::Tensor& matrices) {
  measure::check_matrices(matrices);
  return at::empty(matrices.sizes().slice(0, matrices.dim() - 1),
                   matrices.options().dtype(at::kDouble));
}

// The operators as torch's dispatcher knows them.

void define(torch::Library& library) {
  library.def(
      "accumulate_gram_(Tensor(a!) gram, Tensor(b!) sum, Tensor(c!) count, Tensor z, Tensor shift, "
      "Tensor? keep=None) -> "
      "()");
  library.def(
      "attention_mass(Tensor q, Tensor k, Tensor rows, Tensor targets, Tensor offsets, int groups, "
      "Tensor? mask=None, bool is_causal=True, float? scale=None, float softcap=0.0, int window=0, "
      "Tensor? documents=None, Tensor? sinks=None) -> (Tensor mass, Tensor score, Tensor entropy, "
      "Tensor max_logit, Tensor log_sum_exp, Tensor first_mass)");
  library.def(
      "recompute_rows(Tensor q, Tensor k, Tensor v, Tensor rows, Tensor? mask=None, bool "
      "is_causal=True, float? scale=None, float softcap=0.0, int window=0, Tensor? documents=None, "
      "Tensor? sinks=None) -> Tensor");
  library.def("symmetric_eigenvalues(Tensor matrices) -> Tensor");
}

template <typename Device>
void implement(torch::Library& library) {
  library.impl("accumulate_gram_", gram_on<Device>);
  library.impl("attention_mass", mass_on<Device>);
  library.impl("recompute_rows", rows_on<Device>);
  library.impl("symmetric_eigenvalues", eigenvalues_on<Device>);
}

void implement_meta(torch::Library& library) {
  library.impl("accumulate_gram_", gram_meta);
  library.impl("attention_mass", mass_meta);
  library.impl("recompute_rows", rows_meta);
  library.impl("symmetric_eigenvalues", eigenvalues_meta);
}

// Measurements are never differentiated: no autograd node, whatever the inputs require.
void pass_autograd(torch::Library& library) {
  for (const char* name :
       {"accumulate_gram_", "attention_mass", "recompute_rows", "symmetric_eigenvalues"}) {
    library.impl(name, torch::CppFunction::makeFallthrough());
  }
}

const measure::Registration registration(
    "headscope::accumulate_gram_",
    {{torch::Library::DEF, std::nullopt, define},
#ifdef HEADSCOPE_EMULATED
     // The parity tests' build: emulated kernels, whose device memory is the host's.
     {torch::Library::IMPL, c10::DispatchKey::CPU, implement<Cuda>},
#else
     {torch::Library::IMPL, c10::DispatchKey::CPU, implement<Cpu>},
#endif
#ifdef HEADSCOPE_CUDA
     {torch::Library::IMPL, c10::DispatchKey::CUDA, implement<Cuda>},
#endif
     {torch::Library::IMPL, c10::DispatchKey::Meta, implement_meta},
     {torch::Library::IMPL, c10::DispatchKey::Autograd, pass_autograd}});

template <typename Signature>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

// Here, so that whoever asks brings the registration along, out of a static archive too.
void measure::check_process() {
  if (!registration.refusal().empty()) throw std::invalid_argument(registration.refusal());
  const std::string mismatch = torch_mismatch(at::show_config(), TORCH_VERSION);
  if (!mismatch.empty()) throw std::invalid_argument(mismatch);
}

bool measure::is_captured([[maybe_unused]] const at::Tensor& tensor) {
#ifdef HEADSCOPE_CUDA
  return tensor.is_cuda() && cuda::is_captured(tensor);
#else
  return false;
#endif
}

bool measures_on(c10::DeviceType device) {
  static const auto op = find_operator<decltype(gram_meta)>("headscope::accumulate_gram_");
  return op.hasKernelForDispatchKey(c10::computeDispatchKey(std::nullopt, std::nullopt, device));
}

void accumulate_gram_(at::Tensor& gram, at::Tensor& sum, at::Tensor& count, const at::Tensor& z,
                      const at::Tensor& shift, const OptionalTensor& keep) {
  static const auto op = find_operator<decltype(gram_meta)>("headscope::accumulate_gram_");
  op.call(gram, sum, count, z, shift, keep);
}

AttentionRows attention_mass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows,
                             const at::Tensor& targets, const at::Tensor& offsets, int64_t groups,
                             const AttentionCall& call) {
  static const auto op = find_operator<decltype(mass_meta)>("headscope::attention_mass");
  auto [mass, score, entropy, max_logit, log_sum_exp, first_mass] =
      op.call(q, k, rows, targets, offsets, groups, call.bias, call.is_causal, call.scale,
              call.softcap, call.window, call.documents, call.sinks);
  return {mass, score, entropy, max_logit, log_sum_exp, first_mass};
}

at::Tensor recompute_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& rows, const AttentionCall& call) {
  static const auto op = find_operator<decltype(rows_meta)>("headscope::recompute_rows");
  return op.call(q, k, v, rows, call.bias, call.is_causal, call.scale, call.softcap, call.window,
                 call.documents, call.sinks);
}

at::Tensor symmetric_eigenvalues(const at::Tensor& matrices) {
  static const auto op =
      find_operator<decltype(eigenvalues_meta)>("headscope::symmetric_eigenvalues");
  return op.call(matrices);
}

}  // namespace headscope
