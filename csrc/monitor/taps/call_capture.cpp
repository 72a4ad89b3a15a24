#include "csrc/monitor/taps/call_capture.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <thread>

#include "csrc/probe/group_table.h"
#include "csrc/probe/seen_keys.h"

namespace headscope {
namespace {

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

/// Dropout hides what the call was told.
bool can_be_checked(const AttentionCall& call) { return call.dropout == 0; }

/// The one query of a probe's row that counts.
at::Tensor last_output(const TappedCall& tapped) {
  return tapped.z.narrow(2, tapped.z.size(2) - 1, 1);
}

/// Planted rows have no padding, whatever their tokens look like.
AttentionCall without_padding(const AttentionCall& call) {
  AttentionCall in_probe = call;
  in_probe.keep = std::nullopt;
  return in_probe;
}

}  // namespace

void capture_train(Capture& capture, const TappedCall& tapped, const std::vector<at::Tensor>& ids,
                   int64_t step, const TrainSampling& sampling, FaultGate& gate) {
  const auto& [layer, q, k, v, z, call] = tapped;
  LayerCapture& own = capture.layers[layer];
  const std::thread::id thread = std::this_thread::get_id();
  const size_t ordinal = own.calls[thread]++;
  if (tapped.empty()) return;  // an empty batch or no heads: nothing to measure
  own.type = z.scalar_type();
  capture_spectrum(own.spectrum, z, call.keep);
  const size_t micro =
      capture.micro_of.try_emplace({thread, ordinal}, capture.micro_of.size()).first->second;
  const size_t chosen = plan_for(capture, micro, layer, q, call, fitting_ids(ids, ordinal, q, gate),
                                 sampling.patterns, sampling.rows,
                                 mixed(sampling.seed, step, static_cast<int64_t>(micro)));
  const TrainPlan& plan = capture.plans[chosen];
  own.plan_of.push_back(chosen);
  own.attention.push_back(
      attention_mass(q, k, plan.rows, plan.targets, plan.offsets, plan.groups, call));
  if (own.attention.size() == 1 && sampling.self_check && can_be_checked(call))
    own.self_check = capture_self_check(q, k, v, z, call, plan.rows.slice(1, 0, std::nullopt, 4));
}

void capture_chunk(LayerCapture& own, const TappedCall& tapped, const ProbePlan& plan,
                   size_t number, bool self_check, FaultGate& gate) {
  const auto& [layer, q, k, v, z, call] = tapped;
  const ProbePlan::Chunk& chunk = plan.chunks[number];
  TORCH_CHECK(q.size(0) == chunk.tokens.size(0) && q.size(2) == chunk.tokens.size(1), "layer ",
              layer, ": the probe ran tokens ", chunk.tokens.sizes(),
              " but attention saw [B, T] = [", q.size(0), ", ", q.size(2),
              "]; forward must run all tokens of each row at once");
  if (own.attention.size() > number) return;  // a layer that runs twice in one forward counts once
  capture_spectrum(own.spectrum, last_output(tapped), std::nullopt);
  own.attention.push_back(
      attention_mass(q, k, chunk.rows, chunk.targets, chunk.offsets, plan.groups, call));
  own.seen.push_back(seen_keys(chunk.rows, q.size(2), without_padding(call)));
  if (own.seen.back().defined()) {
    warn_of_hidden(layer, plan, chunk, seen_counts(chunk.targets, chunk.offsets, own.seen.back()),
                   gate);
  }
  if (plan.queries.queries > 0) {
    const QueryPlan::Chunk& asked = plan.queries.chunks[number];
    own.query_attention.push_back(attention_mass(q, k, asked.rows, asked.targets, asked.offsets,
                                                 plan.queries.groups(), call));
    own.query_seen.push_back(seen_keys(asked.rows, q.size(2), without_padding(call)));
  }
  if (call.sinks) own.sinks = call.sinks->to(at::kDouble, false, /*copy=*/true);
  if (number == 0 && self_check && can_be_checked(call)) {
    const int64_t context = q.size(2);
    const at::Tensor rows = int64_tensor(std::vector<int64_t>{context / 3, context - 1}, {1, 2})
                                .expand({q.size(0), 2})
                                .contiguous();
    own.self_check = capture_self_check(q, k, v, z, call, rows);
  }
}

void capture_null_rows(LayerCapture& own, const TappedCall& tapped) {
  capture_spectrum(own.null_spectrum, last_output(tapped), std::nullopt);
}

void capture_repeat(LayerCapture& own, const TappedCall& tapped, const RepeatPlan& repeat) {
  if (own.repeat) return;
  const at::Tensor seen = seen_keys(repeat.rows, tapped.q.size(2), without_padding(tapped.call));
  const auto counts = seen_counts(repeat.targets, repeat.offsets, seen);
  if (std::count(counts.begin(), counts.end(), 0) > 0) return;  // hidden: not measurable here
  own.repeat = attention_mass(tapped.q, tapped.k, repeat.rows, repeat.targets, repeat.offsets, 1,
                              tapped.call);
}

}  // namespace headscope
