#include "plugin/torch/sdpa_override.h"

#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/TracerMode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <torch/library.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "headscope/measure.h"

namespace headscope {
namespace {

constexpr const char* kOperator = "scaled_dot_product_attention";

// Threads that observe at all: the one relaxed load of an idle call.
std::atomic<int> observing_threads{0};
thread_local ObserverList observers;

// Its math path is a bmm, a softmax and a bmm: one attention, not two.
thread_local int depth = 0;
struct Inside {
  Inside() { ++depth; }
  ~Inside() { --depth; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

/// Graphs are traced with stand-ins for tensors: there is nothing to measure in them.
bool stands_in(const at::Tensor& tensor) {
  return at::tracer::impl::is_dispatch_enabled() || at::isTensorSubclassLike(tensor);
}

at::Tensor watched(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                   std::optional<double> scale, bool enable_gqa) {
  // The composite itself: autograd sees the operators that it calls, as without us. A checkpoint
  // that stops early unwinds through it.
  const Inside inside;
  at::Tensor z = at::native::scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, scale,
                                                          enable_gqa);
  if (observing_threads.load(std::memory_order_relaxed) == 0 || observers.empty() || stands_in(q))
    return z;
  SeenCall call{SeenCall::Kind::kSdpa, q, k, v, z, {}};
  if (mask && mask->defined()) call.call.bias = mask;
  call.call.is_causal = is_causal;
  call.call.scale = scale;
  call.call.dropout = dropout;
  for (CallObserver* observer : observers.living()) call.z = observer->seen(call);
  return call.z;
}

/// With autograd and without, on every kind of device that is measured.
std::vector<c10::DispatchKey> overridden_keys() {
  std::vector<c10::DispatchKey> keys = {c10::DispatchKey::AutogradCPU, c10::DispatchKey::CPU};
  if (measures_on(at::kCUDA))
    keys.insert(keys.end(), {c10::DispatchKey::AutogradCUDA, c10::DispatchKey::CUDA});
  return keys;
}

std::mutex acquire_mutex;
std::weak_ptr<SdpaOverride> current;

}  // namespace

struct SdpaOverride::Kernels {
  std::deque<torch::Library> libraries;  // which do not move
};

SdpaOverride::SdpaOverride() : kernels_(std::make_unique<Kernels>()) {
  for (const c10::DispatchKey key : overridden_keys()) {
    kernels_->libraries.emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__)
        .impl(kOperator, TORCH_FN(watched));
  }
}

SdpaOverride::~SdpaOverride() {
  const std::scoped_lock lock(acquire_mutex);
  kernels_.reset();
}

std::shared_ptr<SdpaOverride> SdpaOverride::acquire() {
  const std::scoped_lock lock(acquire_mutex);
  if (auto held = current.lock()) return held;
  const auto found = c10::Dispatcher::singleton().findSchemaOrThrow(
      (std::string("aten::") + kOperator).c_str(), "");
  for (const c10::DispatchKey key : overridden_keys()) {
    if (!found.hasKernelForDispatchKey(key)) continue;
    throw std::invalid_argument(
        std::string("headscope zero-edit attach: another library has already overridden ") +
        kOperator + " at " + c10::toString(key) +
        "; two overrides would hide each other: call Monitor::observe in the attention layer "
        "instead");
  }
  std::shared_ptr<SdpaOverride> made(new SdpaOverride());
  current = made;
  return made;
}

bool inside_sdpa() { return depth > 0; }

void observe_sdpa(CallObserver* observer) {
  if (observers.living().empty()) observing_threads.fetch_add(1, std::memory_order_relaxed);
  observers.add(observer);
}

void stop_observing_sdpa(CallObserver* observer) {
  if (observers.empty()) return;  // it was watching on another thread
  observers.remove(observer);
  if (observers.living().empty()) observing_threads.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace headscope
