#include "csrc/monitor/taps/taps.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <optional>
#include <utility>

#include "csrc/measure/device.h"
#include "csrc/monitor/edge/host_guard.h"

namespace headscope {
namespace {

/// True in a backward: a checkpoint's recompute, or a custom function's own attention.
bool inside_backward() { return torch::autograd::get_current_graph_task_id() >= 0; }

}  // namespace

Taps::Taps(const Options& options, HealthCounters& health, FaultGate& gate, std::atomic<Mode>& mode)
    : health_(health),
      gate_(gate),
      mode_(mode),
      sampling_{standard_patterns(), options.sampled_rows, options.seed, options.self_check} {}

at::Tensor Taps::observe(const TappedCall& tapped) {
  const at::Tensor& z = tapped.z;
  const Mode now = mode_.load(std::memory_order_relaxed);
  if (!wants_call(now)) return z;
  if (now == Mode::kAblate) return ablation_->observe(tapped.layer, z);
  if (now == Mode::kScreen) {
    screened_->take(tapped);
    return z;
  }
  if (measure::is_captured(z)) {
    // What is recorded now would run again at every replay.
    health_.taps_skipped.fetch_add(1, std::memory_order_relaxed);
    return z;
  }
  std::optional<ScopedTimer> timer;  // a probe's taps are part of the probe's time
  if (now == Mode::kTrain) timer.emplace(health_.tap_nanoseconds);
  const std::scoped_lock lock(mutex_);
  if (!capture_ || given_up_ || (now == Mode::kTrain && beyond_told(tapped.layer))) {
    health_.taps_skipped.fetch_add(1, std::memory_order_relaxed);
    return z;
  }
  const bool taken = gate_.guarded(now == Mode::kTrain ? Fault::kTap : Fault::kProbe, [&] {
    const QuietScope quiet;
    check_attention_call(tapped);
    capture_call(now, tapped);
  });
  given_up_ = !taken;
  if (taken) health_.taps.fetch_add(1, std::memory_order_relaxed);
  return z;
}

bool Taps::wants_call(Mode now) {
  if (now == Mode::kIdle) return false;
  if (now != Mode::kTrain) return std::this_thread::get_id() == pass_thread_.load();
  // Nothing trains under InferenceMode: an evaluation between micro-batches.
  if (!inside_backward() && !c10::InferenceMode::is_enabled()) return true;
  health_.taps_skipped.fetch_add(1, std::memory_order_relaxed);
  return false;
}

bool Taps::beyond_told(int64_t layer) const {
  const std::thread::id thread = std::this_thread::get_id();
  const auto told = ids_.find(thread);
  if (told == ids_.end()) return false;
  const auto own = capture_->layers.find(layer);
  if (own == capture_->layers.end()) return told->second.empty();
  const auto calls = own->second.calls.find(thread);
  return calls != own->second.calls.end() && calls->second >= told->second.size();
}

void Taps::capture_call(Mode now, const TappedCall& tapped) {
  if (now == Mode::kTrain) {
    const std::vector<at::Tensor> nothing;
    const auto told = ids_.find(std::this_thread::get_id());
    return capture_train(*capture_, tapped, told == ids_.end() ? nothing : told->second, step_,
                         sampling_, gate_);
  }
  LayerCapture& own = capture_->layers[tapped.layer];
  if (tapped.empty()) return;
  own.type = tapped.z.scalar_type();
  if (now == Mode::kRepeatProbe) return capture_repeat(own, tapped, repeat_);
  if (now == Mode::kNullProbe) return capture_null_rows(own, tapped);
  capture_chunk(own, tapped, *plan_, probe_chunk_, sampling_.self_check, gate_);
}

void Taps::micro_batch(const at::Tensor& told) {
  if (!training()) return;
  gate_.guarded(Fault::kTap, [&] {
    const QuietScope quiet;
    at::Tensor copy = told.to(at::kCPU, at::kLong).clone();
    {
      const std::scoped_lock lock(mutex_);
      ids_[std::this_thread::get_id()].push_back(std::move(copy));
    }
    if (watch_) watch_->forward_begins();
  });
}

bool Taps::told_all(size_t forwards) {
  const std::scoped_lock lock(mutex_);
  const auto told = ids_.find(std::this_thread::get_id());
  if (told == ids_.end() || forwards < told->second.size()) return false;
  health_.taps_skipped.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Taps::refuse_capture(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  gate_.report(training() ? Fault::kTap : Fault::kProbe, why.c_str());
  given_up_ = true;
}

void Taps::set_probe(std::shared_ptr<const ProbePlan> plan, RepeatPlan repeat) {
  const std::scoped_lock lock(mutex_);
  given_up_ = true;
  sampling_.patterns = plan->patterns;
  plan_ = std::move(plan);
  repeat_ = std::move(repeat);
}

void Taps::set_mode(Mode next) {
  const Mode before = mode_.load(std::memory_order_relaxed);
  const bool changes = watch_ && (before == Mode::kIdle) != (next == Mode::kIdle);
  if (changes && next == Mode::kIdle) watch_->measuring(false);
  mode_.store(next, std::memory_order_relaxed);
  if (changes && next != Mode::kIdle) watch_->measuring(true);
}

void Taps::begin_capture(int64_t context) {
  capture_ = std::make_shared<Capture>();
  capture_->context = context;
  given_up_ = false;
  ids_.clear();
}

void Taps::begin_train(int64_t step) {
  const std::scoped_lock lock(mutex_);
  begin_capture(0);
  step_ = step;
  set_mode(Mode::kTrain);
}

std::shared_ptr<Capture> Taps::take() {
  std::shared_ptr<Capture> taken;
  const std::scoped_lock lock(mutex_);
  ids_.clear();
  taken = std::move(capture_);
  return given_up_ ? nullptr : taken;
}

bool Taps::ask(size_t chunks, const std::function<bool(const Capture&)>& question) {
  const std::scoped_lock lock(mutex_);
  if (!capture_ || given_up_ || capture_->layers.empty()) return false;
  for (const auto& [layer, own] : capture_->layers) {
    if (own.attention.size() != chunks || !own.attention.front().mass.is_cpu()) return false;
  }
  return question(*capture_);
}

Taps::Pass::Pass(Taps& taps) : taps_(taps) { taps_.pass_thread_.store(std::this_thread::get_id()); }

Taps::Pass::~Pass() {
  taps_.idle();
  taps_.ablation_ = nullptr;
  taps_.screened_ = nullptr;
}

void Taps::Pass::begin_probe(int64_t context) {
  const std::scoped_lock lock(taps_.mutex_);
  taps_.begin_capture(context);
}

void Taps::Pass::expect_chunk(size_t chunk) {
  taps_.probe_chunk_ = chunk;
  taps_.set_mode(Mode::kProbe);
}

void Taps::Pass::ablate(HeadAblation& ablation) {
  taps_.ablation_ = &ablation;
  taps_.set_mode(Mode::kAblate);
}

void Taps::Pass::screen(RowAttention& rows) {
  taps_.screened_ = &rows;
  taps_.set_mode(Mode::kScreen);
}

at::Tensor Taps::Pass::forward(const ForwardFunction& forward, const at::Tensor& tokens) {
  if (taps_.watch_) taps_.watch_->forward_begins();
  return forward(tokens);
}

}  // namespace headscope
