#include "plugin/torch/zero_edit.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "csrc/monitor/monitor_impl.h"
#include "csrc/monitor/passes/host_evaluation.h"
#include "plugin/torch/eager_watch.h"

namespace headscope {
namespace {

constexpr int64_t kLearningRows = 2;

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("headscope zero-edit attach: " + what);
}

const char* name_of(SeenCall::Kind kind) {
  return kind == SeenCall::Kind::kSdpa ? "scaled_dot_product_attention" : "bmm-softmax-bmm";
}

std::string shape_of(const AttentionSite& site) {
  return c10::str(site.kind, " with ", site.query_heads, " query heads, ", site.key_heads,
                  " key heads, head dimensions ", site.head_dim, " and ", site.value_dim);
}

AttentionSite site_of(const SeenCall& call) {
  AttentionSite site;
  site.kind = name_of(call.kind);
  if (call.q.dim() != 4 || call.k.dim() != 4 || call.v.dim() != 4) return site;
  site.query_heads = call.q.size(1);
  site.key_heads = call.k.size(1);
  site.head_dim = call.q.size(3);
  site.value_dim = call.v.size(3);
  return site;
}

}  // namespace

ZeroEdit::ZeroEdit(Taps& taps, const ProbeSetup& probe, FaultGate& gate, int64_t layers)
    : taps_(taps), gate_(gate), override_(SdpaOverride::acquire()) {
  learn_forward(probe);
  int64_t measured = 0;
  bool sdpa = false, eager = false;
  for (AttentionSite& site : sites_) {
    if (!site.refusal.empty()) {
      gate_.log(LogLevel::kWarning, "zero-edit attach: one attention call of the forward (" +
                                        shape_of(site) + ") is not measured: " + site.refusal);
    } else {
      site.layer = measured++;
    }
    (site.kind == name_of(SeenCall::Kind::kSdpa) ? sdpa : eager) = true;
  }
  if (sites_.empty()) {
    refuse(
        "the forward made no attention call that can be seen; scaled_dot_product_attention and bmm "
        "-> "
        "softmax -> bmm are. A fused kernel of another library, or a forward that runs on another "
        "thread, needs Monitor::observe in the attention layer");
  }
  if (measured == 0)
    refuse("none of the attention calls can be measured: " + sites_.front().refusal);
  if (layers > 0 && measured != layers) {
    refuse(c10::str(layers, " layers were promised, and the forward made ", measured,
                    " attention calls that can be measured"));
  }
  uses_sdpa_ = sdpa;
  uses_eager_ = eager;
  if (!sdpa) override_.reset();
}

ZeroEdit::~ZeroEdit() { watch(false); }

void ZeroEdit::learn_forward(const ProbeSetup& probe) {
  const at::Tensor all = probe.plan->chunks.front().tokens;
  const at::Tensor tokens = all.narrow(0, 0, std::min(kLearningRows, all.size(0)));
  learning_rows_ = tokens.size(0);
  const HostEvaluation evaluation(probe.host);
  learning_ = true;
  watch(true);
  const std::shared_ptr<void> done(nullptr, [this](void*) {
    watch(false);
    learning_ = false;
  });
  try {
    probe.host.forward(tokens);
  } catch (const std::exception& error) {
    refuse(std::string("the probe's forward failed on two rows: ") + error.what());
  }
}

void ZeroEdit::watch(bool on) {
  if (watching_.exchange(on) == on) return;
  if (on) thread_ = std::this_thread::get_id();
  if (uses_sdpa_) on ? observe_sdpa(this) : stop_observing_sdpa(this);
  if (uses_eager_) on ? observe_eager(this) : stop_observing_eager(this);
}

void ZeroEdit::measuring(bool on) noexcept {
  gate_.guarded(Fault::kTap, [&] {
    if (!on) forward_begins();  // the last forward must have been whole
    forwards_ = 0;
    watch(on);
  });
}

void ZeroEdit::forward_begins() noexcept {
  if (std::this_thread::get_id() != thread_) return;  // a micro-batch of another thread's
  gate_.guarded(Fault::kTap, [&] {
    if (!lost_ && next_ != 0) {
      taps_.refuse_capture(c10::str("a forward made ", next_, " attention calls where ",
                                    sites_.size(), " were learnt when the monitor was attached"));
    }
  });
  next_ = 0;
  lost_ = false;
}

int64_t ZeroEdit::heads_of_next(int64_t merged) const noexcept {
  if (learning_) return merged % learning_rows_ == 0 ? merged / learning_rows_ : 0;
  return sites_[next_].query_heads;
}

at::Tensor ZeroEdit::seen(SeenCall call) noexcept {
  at::Tensor given = call.z;
  gate_.guarded(Fault::kTap, [&] {
    if (learning_) {
      learn(call);
    } else if (watching_ && !lost_ && taps_.wants_call()) {
      given = measure(call);
    }
  });
  return given;
}

void ZeroEdit::learn(const SeenCall& call) {
  AttentionSite site = site_of(call);
  if (site.query_heads == 0) {
    site.refusal = c10::str("its q is ", call.q.sizes(), ", and [B, H, T, D] is needed");
  } else if (call.k.size(2) != call.q.size(2)) {
    site.refusal = c10::str("it has ", call.k.size(2), " keys for ", call.q.size(2),
                            " queries (cross-attention, bias_k or add_zero_attn)");
  } else {
    try {
      check_attention_call({0, call.q, call.k, call.v, call.z, call.call});
    } catch (const std::exception& error) {
      const std::string what = error.what();
      site.refusal = what.substr(0, what.find('\n'));
    }
  }
  sites_.push_back(std::move(site));
}

std::string ZeroEdit::difference(const SeenCall& call) const {
  const AttentionSite &want = sites_[next_], got = site_of(call);
  if (want.kind == got.kind && want.query_heads == got.query_heads &&
      want.key_heads == got.key_heads && want.head_dim == got.head_dim &&
      want.value_dim == got.value_dim)
    return {};
  return c10::str("call ", next_, " of a forward is ", shape_of(got),
                  " where the monitor learnt at attach ", shape_of(want));
}

at::Tensor ZeroEdit::measure(SeenCall& call) {
  const bool train = taps_.training();
  // An evaluation after the last micro-batch that was told may be of another model altogether.
  if (train && next_ == 0 && taps_.told_all(forwards_)) return call.z;
  // Dropout does nothing in a probe: what stands between softmax and product there, the self-check
  // judges.
  if (!train) call.call.dropout = 0;
  const std::string wrong = difference(call);
  if (!wrong.empty()) {
    lost_ = true;
    taps_.refuse_capture(wrong);
    return call.z;
  }
  const int64_t layer = sites_[next_].layer;
  next_ = (next_ + 1) % sites_.size();
  if (next_ == 0) ++forwards_;
  return layer < 0 ? call.z : taps_.observe({layer, call.q, call.k, call.v, call.z, call.call});
}

std::vector<AttentionSite> Monitor::attach_zero_edit(int64_t layers) {
  impl_->refuse_inherited();
  if (impl_->closed) refuse("the monitor is closed");
  if (layers < 0) refuse("layers must not be negative, got " + std::to_string(layers));
  if (!impl_->probe) refuse("call set_probe first: its forward shows the layers");
  if (mode_.load(std::memory_order_relaxed) != Mode::kIdle)
    refuse("a measured step is open; attach between steps");
  impl_->drain();
  // One that throws leaves an earlier one in place.
  auto watch = std::make_unique<ZeroEdit>(impl_->taps, *impl_->probe, *impl_->gate, layers);
  std::vector<AttentionSite> sites = watch->sites();
  impl_->taps.set_watch(std::move(watch));
  return sites;
}

void Monitor::detach_zero_edit() {
  if (!impl_->inherited()) impl_->taps.set_watch(nullptr);
}

}  // namespace headscope
