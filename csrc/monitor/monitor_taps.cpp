#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "csrc/measure/device.h"
#include "csrc/monitor/edge/host_guard.h"
#include "csrc/monitor/monitor_impl.h"
#include "csrc/probe/group_table.h"
#include "csrc/probe/seen_keys.h"

namespace headscope {
namespace {

/// True in a backward: a checkpoint's recompute, or a custom function's own attention.
bool inside_backward() { return torch::autograd::get_current_graph_task_id() >= 0; }

uint64_t mixed(uint64_t seed, int64_t step, int64_t micro) {
  // splitmix64: neighbouring steps must not share positions.
  uint64_t x = seed + 0x9e3779b97f4a7c15u *
                          (static_cast<uint64_t>(step) * 1024 + static_cast<uint64_t>(micro) + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The ids told for a micro-batch; undefined when none were told or they do not fit.
at::Tensor fitting_ids(const std::vector<at::Tensor>& ids, size_t ordinal, const at::Tensor& q,
                       FaultGate& gate) {
  if (ordinal >= ids.size()) return {};
  const at::Tensor& told = ids[ordinal];
  if (told.dim() == 2 && told.size(0) == q.size(0) && told.size(1) == q.size(2)) return told;
  gate.log(LogLevel::kWarning,
           c10::str("micro_batch was told ids ", told.sizes(), " but attention runs on [B, T] = [",
                    q.size(0), ", ", q.size(2),
                    "]: patterns that need ids are not measured on the training batch"),
           "ids");
  return {};
}

/// Says once a pattern that a layer cannot have its targets: they are hidden from the last token.
void warn_of_hidden(int64_t layer, const ProbePlan& plan, const ProbePlan::Chunk& chunk,
                    const std::vector<int64_t>& counts, FaultGate& gate) {
  const int64_t* offsets = chunk.offsets.const_data_ptr<int64_t>();
  for (size_t p = 0; p < plan.patterns.size(); ++p) {
    int64_t hidden = 0, rows = chunk.tokens.size(0);
    for (int64_t n = 0; n < rows; ++n) {
      const auto i = static_cast<size_t>(n * plan.groups + plan.target_group(p));
      hidden += counts[i] < offsets[i + 1] - offsets[i] ? 1 : 0;
    }
    if (hidden == 0) continue;
    const std::string& name = plan.patterns[p].name;
    const bool planted = plan.patterns[p].null == NullKind::kPermuteTargets;
    gate.log(
        LogLevel::kWarning,
        c10::str("layer ", layer, ": its mask, window or documents hide the targets of ", name,
                 " in ", hidden, " of ", rows, " probe rows, which are not measured there",
                 planted ? "; set ProbeOptions::window to the smallest window of the layers in "
                           "which it should be found"
                         : ""),
        "hidden " + name);
  }
}

}  // namespace

bool Monitor::Impl::wants_call(Mode now) {
  if (now == Mode::kIdle) return false;
  if (now != Mode::kTrain) return std::this_thread::get_id() == pass_thread.load();
  // Nothing trains under InferenceMode: an evaluation between micro-batches.
  if (!inside_backward() && !c10::InferenceMode::is_enabled()) return true;
  health->taps_skipped.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void Monitor::Impl::refuse_capture(const std::string& why) {
  const std::scoped_lock lock(tap_mutex);
  gate->report(mode.load(std::memory_order_relaxed) == Mode::kTrain ? Fault::kTap : Fault::kProbe,
               why.c_str());
  capture_failed = true;
}

at::Tensor Monitor::Impl::observe(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const at::Tensor& z,
                                  const AttentionCall& call) {
  const Mode now = mode.load(std::memory_order_relaxed);
  if (!wants_call(now)) return z;
  if (now == Mode::kAblate) return ablate(layer, z);
  if (measure::is_captured(z)) {
    // What is recorded now would run again at every replay.
    health->taps_skipped.fetch_add(1, std::memory_order_relaxed);
    return z;
  }
  std::optional<ScopedTimer> timer;  // a probe's taps are part of the probe's time
  if (now == Mode::kTrain) timer.emplace(health->tap_nanoseconds);
  const std::scoped_lock lock(tap_mutex);
  if (!capture || capture_failed) {
    health->taps_skipped.fetch_add(1, std::memory_order_relaxed);
    return z;
  }
  if (now == Mode::kTrain && beyond_told(layer)) {
    health->taps_skipped.fetch_add(1, std::memory_order_relaxed);
    return z;
  }
  const bool taken = gate->guarded(now == Mode::kTrain ? Fault::kTap : Fault::kProbe, [&] {
    const QuietScope quiet;
    check_attention_call(layer, q, k, v, z, call);
    if (now == Mode::kTrain) {
      capture_train(layer, q, k, v, z, call);
    } else {
      capture_probe(layer, q, k, v, z, call);
    }
  });
  capture_failed = !taken;
  if (taken) health->taps.fetch_add(1, std::memory_order_relaxed);
  return z;
}

bool Monitor::Impl::beyond_told(int64_t layer) {
  const std::thread::id thread = std::this_thread::get_id();
  const auto told = ids.find(thread);
  if (told == ids.end()) return false;
  const auto own = capture->layers.find(layer);
  if (own == capture->layers.end()) return told->second.empty();
  const auto calls = own->second.calls.find(thread);
  return calls != own->second.calls.end() && calls->second >= told->second.size();
}

bool Monitor::Impl::told_all(size_t forwards) {
  const std::scoped_lock lock(tap_mutex);
  const auto told = ids.find(std::this_thread::get_id());
  if (told == ids.end() || forwards < told->second.size()) return false;
  health->taps_skipped.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Monitor::Impl::capture_train(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const at::Tensor& z,
                                  const AttentionCall& call) {
  LayerCapture& own = capture->layers[layer];
  const std::thread::id thread = std::this_thread::get_id();
  const size_t ordinal = own.calls[thread]++;
  if (q.numel() == 0 || z.numel() == 0) return;  // an empty batch or no heads: nothing to measure
  own.type = z.scalar_type();
  capture_spectrum(own.spectrum, z, call.keep);
  const size_t micro =
      capture->micro_of.try_emplace({thread, ordinal}, capture->micro_of.size()).first->second;
  const auto told = ids.find(thread);
  const at::Tensor own_ids =
      told == ids.end() ? at::Tensor() : fitting_ids(told->second, ordinal, q, *gate);
  const size_t chosen =
      plan_for(*capture, micro, layer, q, call, own_ids, analysis.patterns(), options.sampled_rows,
               mixed(options.seed, step.step, static_cast<int64_t>(micro)));
  const TrainPlan& own_plan = capture->plans[chosen];
  own.plan_of.push_back(chosen);
  own.attention.push_back(attention_mass(q, k, own_plan.rows, own_plan.targets, own_plan.offsets,
                                         own_plan.groups, call));
  if (own.attention.size() == 1 && wants_self_check(call))
    own.self_check =
        capture_self_check(q, k, v, z, call, own_plan.rows.slice(1, 0, std::nullopt, 4));
}

void Monitor::Impl::capture_probe(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const at::Tensor& z,
                                  const AttentionCall& call) {
  LayerCapture& own = capture->layers[layer];
  if (q.numel() == 0 || z.numel() == 0) return;
  own.type = z.scalar_type();
  const at::Tensor last = z.narrow(2, z.size(2) - 1, 1);
  AttentionCall in_probe = call;  // planted rows have no padding, whatever their tokens look like
  in_probe.keep = std::nullopt;
  if (mode.load(std::memory_order_relaxed) == Mode::kRepeatProbe) {
    if (own.repeat) return;
    const at::Tensor seen = seen_keys(repeat.rows, q.size(2), in_probe);
    const auto counts = seen_counts(repeat.targets, repeat.offsets, seen);
    if (std::count(counts.begin(), counts.end(), 0) > 0) return;  // hidden: not measurable here
    own.repeat = attention_mass(q, k, repeat.rows, repeat.targets, repeat.offsets, 1, call);
    return;
  }
  if (mode.load(std::memory_order_relaxed) == Mode::kNullProbe) {
    capture_spectrum(own.null_spectrum, last, std::nullopt);
    return;
  }
  const ProbePlan::Chunk& chunk = plan->chunks[probe_chunk];
  TORCH_CHECK(q.size(0) == chunk.tokens.size(0) && q.size(2) == chunk.tokens.size(1), "layer ",
              layer, ": the probe ran tokens ", chunk.tokens.sizes(),
              " but attention saw [B, T] = [", q.size(0), ", ", q.size(2),
              "]; forward must run all tokens of each row at once");
  if (own.attention.size() > probe_chunk)
    return;  // a layer that runs twice in one forward counts once
  capture_spectrum(own.spectrum, last, std::nullopt);
  own.attention.push_back(
      attention_mass(q, k, chunk.rows, chunk.targets, chunk.offsets, plan->groups, call));
  own.seen.push_back(seen_keys(chunk.rows, q.size(2), in_probe));
  if (own.seen.back().defined()) {
    warn_of_hidden(layer, *plan, chunk, seen_counts(chunk.targets, chunk.offsets, own.seen.back()),
                   *gate);
  }
  if (call.sinks) own.sinks = call.sinks->to(at::kDouble, false, /*copy=*/true);
  if (probe_chunk == 0 && wants_self_check(call)) {
    const int64_t context = q.size(2);
    const at::Tensor rows = int64_tensor(std::vector<int64_t>{context / 3, context - 1}, {1, 2})
                                .expand({q.size(0), 2})
                                .contiguous();
    own.self_check = capture_self_check(q, k, v, z, call, rows);
  }
}

void Monitor::Impl::judge_self_checks(Capture& taken) const {
  for (auto& [layer, own] : taken.layers) {
    if (own.self_check.empty()) continue;
    const double error = self_check_error(own.self_check);
    // NaN: not finite, counted with the readings.
    if (!(error > self_check_tolerance(own.type))) continue;
    own.attention_trusted = false;
    gate->report(
        Fault::kSelfCheck,
        c10::str("layer ", layer,
                 ": the output given to observe() differs from softmax(scale q k^T + bias) v by ",
                 error,
                 " of its size, so its attention figures are withheld; pass the layer's bias or "
                 "mask, scale, causality, dropout, softcap, window, documents and sinks in "
                 "AttentionCall")
            .c_str());
  }
}

at::Tensor Monitor::Impl::ablate(int64_t layer, const at::Tensor& z) const {
  const auto chosen = ablated.find(layer);
  if (chosen == ablated.end()) return z;
  at::Tensor copy = z.clone();
  for (const int64_t head : chosen->second) copy.select(1, head).zero_();
  return copy;
}

}  // namespace headscope
