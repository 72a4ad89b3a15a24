#include "plugin/torch/eager_watch.h"

#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/TracerMode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "plugin/torch/sdpa_override.h"

// Without NDEBUG RecordFunction::inputs() of a release build of torch throws inside the callback,
// and torch swallows that: calls would vanish.
#ifndef NDEBUG
#error "compile this file with -DNDEBUG (csrc/torch.cmake, plugin/torch/CMakeLists.txt)"
#endif

namespace headscope {
namespace {

/// A first product [N, T, S] and the softmax over it, until the second product uses it up.
struct Pending {
  at::Tensor q, k;            // [N, T, D], [N, D, S] as the product had them
  at::Tensor scores, shares;  // what went into the softmax, and what came out
};

struct Watch {
  ObserverList observers;
  at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
  std::optional<Pending> product, softmax;
};
thread_local Watch watch;

enum class Op { kProduct, kSoftmax };

/// The inputs of an operator on their way from its start to its end.
struct Held : at::ObserverContext {
  Op op = Op::kProduct;
  at::Tensor left, right;
  std::optional<Pending> second;  // this product is the second one of these scores
};

/// [N, T, S], whether or not N is split into batch and heads.
bool same_scores(const at::Tensor& a, const at::Tensor& b) {
  return a.dim() >= 3 && b.dim() >= 3 && a.size(-1) == b.size(-1) && a.size(-2) == b.size(-2) &&
         a.numel() == b.numel();
}

std::optional<Pending> second_product_of(const at::Tensor& left, const at::Tensor& right) {
  if (!watch.softmax || !same_scores(left, watch.softmax->shares) || right.dim() != 3 ||
      right.size(1) != left.size(-1))
    return std::nullopt;
  return std::exchange(watch.softmax, std::nullopt);
}

std::unique_ptr<at::ObserverContext> at_start(const at::RecordFunction& function) {
  const char* name = function.name();
  const bool product = std::strcmp(name, "aten::bmm") == 0,
             added = std::strcmp(name, "aten::baddbmm") == 0,
             softmax = std::strcmp(name, "aten::softmax") == 0;
  if (!product && !added && !softmax) return nullptr;
  if (inside_sdpa() || at::tracer::impl::is_dispatch_enabled()) return nullptr;
  const at::DisableRecordFunctionGuard quiet;
  const auto inputs = function.inputs();
  const auto tensor = [&](size_t i) {
    return i < inputs.size() && inputs[i].isTensor() ? inputs[i].toTensor() : at::Tensor();
  };
  auto held = std::make_unique<Held>();
  held->op = softmax ? Op::kSoftmax : Op::kProduct;
  held->left = tensor(added ? 1 : 0);
  if (!held->left.defined() || at::isTensorSubclassLike(held->left)) return nullptr;
  if (softmax) {
    const int64_t dim = inputs.size() > 1 && inputs[1].isInt() ? inputs[1].toInt() : -2;
    if (dim != -1 && dim != held->left.dim() - 1) return nullptr;
    return held;
  }
  held->right = tensor(added ? 2 : 1);
  if (!held->right.defined() || held->left.dim() != 3) return nullptr;
  held->second = second_product_of(held->left, held->right);
  return held;
}

/// Tells the observers of a whole attention; writes what they return into the product's own output.
void show(const Held& held, const Pending& scores, const at::Tensor& output) {
  const int64_t merged = output.size(0), tokens = output.size(1), keys = held.right.size(1);
  for (CallObserver* observer : watch.observers.living()) {
    int64_t heads = scores.scores.dim() == 4 ? scores.scores.size(1) : 0;
    if (heads == 0) heads = observer->heads_of_next(merged);
    SeenCall call{SeenCall::Kind::kEager, scores.q, scores.k, held.right, output, {}};
    // Under autocast the product was shown f32 beside bf16; with a scale of 0 only their shape
    // counts.
    call.q = call.q.to(held.right.scalar_type());
    call.k = call.k.to(held.right.scalar_type());
    if (heads > 0 && merged % heads == 0) {
      const int64_t batch = merged / heads;
      call.q = call.q.view({batch, heads, tokens, scores.q.size(2)});
      call.k = call.k.transpose(1, 2).view({batch, heads, keys, scores.k.size(1)});
      call.v = held.right.view({batch, heads, keys, held.right.size(2)});
      call.z = output.view({batch, heads, tokens, output.size(2)});
      call.call.bias = scores.scores.detach().view({batch, heads, tokens, keys});
    }
    call.call.is_causal = false;
    call.call.scale = 0.0;
    // Dropout (or a cast) stands between softmax and product: what z says then is not softmax v.
    call.call.dropout = held.left.data_ptr() == scores.shares.data_ptr() ? 0.0 : 1.0;
    const at::Tensor shown = call.z;
    const at::Tensor given = observer->seen(std::move(call));
    if (!given.is_same(shown)) shown.copy_(given);  // a verification pass, under no_grad
  }
}

void at_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) return;
  const at::DisableRecordFunctionGuard quiet;
  const at::NoGradGuard no_grad;
  auto& held = *static_cast<Held*>(context);
  const auto& outputs = function.outputs();
  if (outputs.size() != 1 || !outputs[0].isTensor()) return;
  const at::Tensor output = outputs[0].toTensor();
  if (held.op == Op::kSoftmax) {
    if (!watch.product || !same_scores(held.left, watch.product->scores)) return;
    watch.softmax = std::exchange(watch.product, std::nullopt);
    watch.softmax->scores = held.left;
    watch.softmax->shares = output;
  } else if (held.second) {
    show(held, *held.second, output);
  } else if (output.dim() == 3) {
    watch.product = Pending{held.left, held.right, output, {}};
  }
}

}  // namespace

void observe_eager(CallObserver* observer) {
  watch.observers.add(observer);
  if (watch.handle != at::INVALID_CALLBACK_HANDLE) return;
  watch.handle = at::addThreadLocalCallback(at::RecordFunctionCallback(at_start, at_end)
                                                .needsInputs(true)
                                                .needsOutputs(true)
                                                .scopes({at::RecordScope::FUNCTION}));
}

void stop_observing_eager(CallObserver* observer) {
  watch.observers.remove(observer);
  if (!watch.observers.living().empty() || watch.handle == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(std::exchange(watch.handle, at::INVALID_CALLBACK_HANDLE));
  watch.product.reset();
  watch.softmax.reset();
}

}  // namespace headscope
