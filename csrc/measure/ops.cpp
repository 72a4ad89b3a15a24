#include <ATen/ATen.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/version.h>

#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "csrc/measure/checks.h"
#include "csrc/measure/device.h"
#include "csrc/measure/entry_points.h"
#ifdef HEADSCOPE_CUDA
#include "csrc/measure/cuda/device.h"
#endif
#include "csrc/measure/process_check.h"
#include "csrc/measure/registration.h"
#include "headscope/measure.h"

// An operator is here: what it gives for fake tensors, its checks, its function on a kind of
// device, its row in the table, and the public function that calls it.
namespace headscope {
namespace {

using measure::check_activation;
using measure::OptionalTensor;
using measure::RowTensors;

/// The device of fake tensors: shapes and dtypes of the results.
struct Fake {
  static void accumulate_gram_(at::Tensor&, at::Tensor&, at::Tensor&, const at::Tensor&,
                               const at::Tensor&, const OptionalTensor&) {}

  static RowTensors attention_mass(const at::Tensor& q, const at::Tensor&, const at::Tensor& rows,
                                   const at::Tensor&, const at::Tensor&, int64_t groups,
                                   const AttentionCall&) {
    const auto options = q.options().dtype(measure::sum_type(q));
    const int64_t batch = q.size(0), heads = q.size(1), sampled = rows.size(1);
    const auto by_group = [&] { return at::empty({batch, heads, sampled, groups}, options); };
    const auto by_row = [&] { return at::empty({batch, heads, sampled}, options); };
    return {by_group(), by_group(), by_row(), by_row(), by_row(), by_row()};
  }

  static at::Tensor recompute_rows(const at::Tensor& q, const at::Tensor&, const at::Tensor& v,
                                   const at::Tensor& rows, const AttentionCall&) {
    return at::empty({q.size(0), q.size(1), rows.size(1), v.size(3)},
                     q.options().dtype(measure::sum_type(q)));
  }

  static at::Tensor symmetric_eigenvalues(const at::Tensor& matrices) {
    return at::empty(matrices.sizes().slice(0, matrices.dim() - 1),
                     matrices.options().dtype(at::kDouble));
  }
};

const at::Tensor* given(const OptionalTensor& tensor) { return tensor ? &*tensor : nullptr; }

/// Fake tensors are on no device.
template <typename Device>
void check_device(const at::Tensor& first, std::initializer_list<const at::Tensor*> others) {
  if constexpr (!std::is_same_v<Device, Fake>) measure::check_device(first, others);
}

// ---------------------------------------------------------------- accumulate_gram_

void check_gram(const at::Tensor& gram, const at::Tensor& sum, const at::Tensor& count,
                const at::Tensor& z, const at::Tensor& shift, const OptionalTensor& keep) {
  check_activation("z", z);
  const int64_t heads = z.size(1), width = z.size(3);
  TORCH_CHECK(gram.sizes() == at::IntArrayRef({heads, width, width}),
              "headscope: gram must be [H, D, D] = [", heads, ", ", width, ", ", width, "] for z ",
              z.sizes(), ", got ", gram.sizes());
  TORCH_CHECK(sum.sizes() == at::IntArrayRef({heads, width}), "headscope: sum must be [H, D] = [",
              heads, ", ", width, "], got ", sum.sizes());
  TORCH_CHECK(shift.sizes() == sum.sizes(), "headscope: shift must be [H, D] = ", sum.sizes(),
              ", got ", shift.sizes());
  TORCH_CHECK(gram.scalar_type() == at::kFloat || gram.scalar_type() == at::kDouble,
              "headscope: gram must be float32 or float64, got ", gram.scalar_type());
  TORCH_CHECK(sum.scalar_type() == gram.scalar_type() && shift.scalar_type() == gram.scalar_type(),
              "headscope: gram, sum and shift must share one dtype, got ", gram.scalar_type(), ", ",
              sum.scalar_type(), " and ", shift.scalar_type());
  TORCH_CHECK(gram.is_contiguous() && sum.is_contiguous(),
              "headscope: gram and sum must be contiguous");
  TORCH_CHECK(count.numel() == 1 && count.scalar_type() == at::kLong,
              "headscope: count must be one int64, got ", count.sizes(), " of ",
              count.scalar_type());
  if (keep) {
    TORCH_CHECK(keep->sizes() == at::IntArrayRef({z.size(0), z.size(2)}) &&
                    keep->scalar_type() == at::kBool,
                "headscope: keep must be bool [B, T] = [", z.size(0), ", ", z.size(2), "], got ",
                keep->sizes(), " of ", keep->scalar_type());
  }
}

template <typename Device>
void gram_on(at::Tensor& gram, at::Tensor& sum, at::Tensor& count, const at::Tensor& z,
             const at::Tensor& shift, const OptionalTensor& keep) {
  check_gram(gram, sum, count, z, shift, keep);
  check_device<Device>(z, {&gram, &sum, &count, &shift, given(keep)});
  Device::accumulate_gram_(gram, sum, count, z, shift, keep);
}

// ---------------------------------------------------------------- attention_mass, recompute_rows

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

void check_rows(const at::Tensor& q, const at::Tensor& rows) {
  TORCH_CHECK(rows.dim() == 2 && rows.size(0) == q.size(0) && rows.scalar_type() == at::kLong,
              "headscope: rows must be int64 [B, R] with B = ", q.size(0), ", got ", rows.sizes(),
              " of ", rows.scalar_type());
}

void check_targets(const at::Tensor& rows, const at::Tensor& targets, const at::Tensor& offsets,
                   int64_t groups) {
  TORCH_CHECK(groups >= 0, "headscope: groups must not be negative, got ", groups);
  TORCH_CHECK(targets.dim() == 1 && targets.scalar_type() == at::kLong,
              "headscope: targets must be int64 [n], got ", targets.sizes(), " of ",
              targets.scalar_type());
  TORCH_CHECK(offsets.dim() == 1 && offsets.scalar_type() == at::kLong &&
                  offsets.numel() == rows.numel() * groups + 1,
              "headscope: offsets must be int64 [B * R * groups + 1] = [",
              rows.numel() * groups + 1, "], got ", offsets.sizes(), " of ", offsets.scalar_type());
}

void check_values(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  check_activation("v", v);
  TORCH_CHECK(v.scalar_type() == q.scalar_type(), "headscope: q and v must share one dtype, got ",
              q.scalar_type(), " and ", v.scalar_type());
  TORCH_CHECK(v.size(0) == k.size(0) && v.size(1) == k.size(1) && v.size(2) == k.size(2),
              "headscope: k ", k.sizes(), " and v ", v.sizes(), " must agree in B, Hkv and T");
}

template <typename Device>
RowTensors mass_on(const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows,
                   const at::Tensor& targets, const at::Tensor& offsets, int64_t groups,
                   const OptionalTensor& mask, bool is_causal, std::optional<double> scale,
                   double softcap, int64_t window, const OptionalTensor& documents,
                   const OptionalTensor& sinks) {
  const AttentionCall call = call_of(mask, is_causal, scale, softcap, window, documents, sinks);
  measure::check_attention(q, k, call);
  check_rows(q, rows);
  check_targets(rows, targets, offsets, groups);
  check_device<Device>(q, {&k, given(mask), given(documents), given(sinks)});
  return Device::attention_mass(q, k, rows, targets, offsets, groups, call);
}

template <typename Device>
at::Tensor rows_on(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const at::Tensor& rows, const OptionalTensor& mask, bool is_causal,
                   std::optional<double> scale, double softcap, int64_t window,
                   const OptionalTensor& documents, const OptionalTensor& sinks) {
  const AttentionCall call = call_of(mask, is_causal, scale, softcap, window, documents, sinks);
  measure::check_attention(q, k, call);
  check_rows(q, rows);
  check_values(q, k, v);
  check_device<Device>(q, {&k, &v, given(mask), given(documents), given(sinks)});
  return Device::recompute_rows(q, k, v, rows, call);
}

// ---------------------------------------------------------------- symmetric_eigenvalues

void check_matrices(const at::Tensor& matrices) {
  TORCH_CHECK(matrices.dim() >= 2 && matrices.size(-1) == matrices.size(-2),
              "headscope: matrices must be [..., n, n], got ", matrices.sizes());
  TORCH_CHECK(matrices.scalar_type() == at::kFloat || matrices.scalar_type() == at::kDouble,
              "headscope: matrices must be float32 or float64, got ", matrices.scalar_type());
}

template <typename Device>
at::Tensor eigenvalues_on(const at::Tensor& matrices) {
  check_matrices(matrices);
  return Device::symmetric_eigenvalues(matrices);
}

// ---------------------------------------------------------------- the table

struct Operator {
  const char* schema;
  void (*implement)(torch::Library& library, const char* name);

  std::string name() const { return std::string(schema, std::string_view(schema).find('(')); }
};

template <auto kFunction>
void implement(torch::Library& library, const char* name) {
  library.impl(name, kFunction);
}

/// All that torch's dispatcher knows of the operators: a row has the schema and the implementation
/// on a kind of device.
template <typename Device>
constexpr Operator kOperators[] = {
    {"accumulate_gram_(Tensor(a!) gram, Tensor(b!) sum, Tensor(c!) count, Tensor z, Tensor shift, "
     "Tensor? keep=None) -> ()",
     implement<gram_on<Device>>},
    {"attention_mass(Tensor q, Tensor k, Tensor rows, Tensor targets, Tensor offsets, int groups, "
     "Tensor? mask=None, bool is_causal=True, float? scale=None, float softcap=0.0, int window=0, "
     "Tensor? documents=None, Tensor? sinks=None) -> (Tensor mass, Tensor score, Tensor entropy, "
     "Tensor max_logit, Tensor log_sum_exp, Tensor first_mass)",
     implement<mass_on<Device>>},
    {"recompute_rows(Tensor q, Tensor k, Tensor v, Tensor rows, Tensor? mask=None, bool "
     "is_causal=True, float? scale=None, float softcap=0.0, int window=0, Tensor? documents=None, "
     "Tensor? sinks=None) -> Tensor",
     implement<rows_on<Device>>},
    {"symmetric_eigenvalues(Tensor matrices) -> Tensor", implement<eigenvalues_on<Device>>},
};

void define(torch::Library& library) {
  for (const Operator& op : kOperators<Fake>) library.def(op.schema);
}

template <typename Device>
void implement_on(torch::Library& library) {
  for (const Operator& op : kOperators<Device>) op.implement(library, op.name().c_str());
}

/// Measurements are never differentiated: no autograd node, whatever the inputs require.
void pass_autograd(torch::Library& library) {
  for (const Operator& op : kOperators<Fake>)
    library.impl(op.name().c_str(), torch::CppFunction::makeFallthrough());
}

const measure::Registration registration(
    "headscope::accumulate_gram_",
    {{torch::Library::DEF, std::nullopt, define},
#ifdef HEADSCOPE_EMULATED
     // The parity tests' build: emulated kernels, whose device memory is the host's.
     {torch::Library::IMPL, c10::DispatchKey::CPU, implement_on<cuda::EntryPoints>},
#else
     {torch::Library::IMPL, c10::DispatchKey::CPU, implement_on<cpu::EntryPoints>},
#endif
#ifdef HEADSCOPE_CUDA
     {torch::Library::IMPL, c10::DispatchKey::CUDA, implement_on<cuda::EntryPoints>},
#endif
     {torch::Library::IMPL, c10::DispatchKey::Meta, implement_on<Fake>},
     {torch::Library::IMPL, c10::DispatchKey::Autograd, pass_autograd}});

/// kFunction: of the operator, on any kind of device.
template <auto kFunction>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<std::remove_pointer_t<decltype(kFunction)>>();
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
  static const auto op = find_operator<gram_on<Fake>>("headscope::accumulate_gram_");
  return op.hasKernelForDispatchKey(c10::computeDispatchKey(std::nullopt, std::nullopt, device));
}

void accumulate_gram_(at::Tensor& gram, at::Tensor& sum, at::Tensor& count, const at::Tensor& z,
                      const at::Tensor& shift, const OptionalTensor& keep) {
  static const auto op = find_operator<gram_on<Fake>>("headscope::accumulate_gram_");
  op.call(gram, sum, count, z, shift, keep);
}

AttentionRows attention_mass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows,
                             const at::Tensor& targets, const at::Tensor& offsets, int64_t groups,
                             const AttentionCall& call) {
  static const auto op = find_operator<mass_on<Fake>>("headscope::attention_mass");
  auto [mass, score, entropy, max_logit, log_sum_exp, first_mass] =
      op.call(q, k, rows, targets, offsets, groups, call.bias, call.is_causal, call.scale,
              call.softcap, call.window, call.documents, call.sinks);
  return {mass, score, entropy, max_logit, log_sum_exp, first_mass};
}

at::Tensor recompute_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& rows, const AttentionCall& call) {
  static const auto op = find_operator<rows_on<Fake>>("headscope::recompute_rows");
  return op.call(q, k, v, rows, call.bias, call.is_causal, call.scale, call.softcap, call.window,
                 call.documents, call.sinks);
}

at::Tensor symmetric_eigenvalues(const at::Tensor& matrices) {
  static const auto op = find_operator<eigenvalues_on<Fake>>("headscope::symmetric_eigenvalues");
  return op.call(matrices);
}

}  // namespace headscope
