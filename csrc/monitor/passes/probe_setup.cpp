#include "csrc/monitor/passes/probe_setup.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>

#include "csrc/monitor/passes/behaviour.h"
#include "csrc/monitor/passes/host_evaluation.h"

namespace headscope {
namespace {

std::shared_ptr<const ProbePlan> plan_of(const ProbeOptions& options) {
  const InductionBatch batch = induction_batch({.examples = options.examples,
                                                .context = options.context,
                                                .token_low = options.token_low,
                                                .token_high = options.token_high,
                                                .seed = options.seed,
                                                .window = options.window});
  return std::make_shared<const ProbePlan>(plan_probe(batch.tokens, options));
}

std::vector<at::Tensor> null_chunks_of(const ProbeOptions& options) {
  if (!options.pr_null) return {};
  const at::Tensor tokens =
      random_tokens(options.examples, options.context, 0, options.vocab_size, options.seed + 3);
  return tokens.split(options.micro_batch);
}

/// Size and FNV-1a of the rows: attempts on a circuit count on the ones that earlier ones left.
std::string identity_of(const at::Tensor& rows_in) {
  if (!rows_in.defined()) return "none";
  const at::Tensor rows = rows_in.to(at::kCPU).contiguous();
  uint64_t hash = 0xcbf29ce484222325;
  const auto* bytes = reinterpret_cast<const unsigned char*>(rows.const_data_ptr<int64_t>());
  for (size_t i = 0; i < rows.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return c10::str("[", rows.size(0), ", ", rows.size(1), "] with hash ", hash);
}

}  // namespace

ProbeSetup::ProbeSetup(ProbeHost host_in, ProbeOptions options_in)
    : host(std::move(host_in)),
      options(resolved(std::move(options_in))),
      plan(plan_of(options)),
      null_chunks(null_chunks_of(options)),
      repeat(plan_repeat(options)) {
  check_held_out(options);
}

std::string ProbeSetup::definition() const {
  return "examples " + std::to_string(options.examples) + ", tokens [" +
         std::to_string(options.token_low) + ", " + std::to_string(options.token_high) +
         "), seed " + std::to_string(options.seed) + ", controls " + to_string(options.controls) +
         ", " + std::to_string(options.position_queries) + " position queries" +
         (options.window > 0 ? ", window " + std::to_string(options.window) : "") +
         ", whole every " + std::to_string(options.whole_every) + ", held-out rows " +
         identity_of(options.held_out);
}

std::shared_ptr<Capture> ProbeSetup::run(Taps& taps, HealthCounters& health, FaultGate& gate,
                                         bool whole,
                                         const std::function<bool(const Capture&)>& decided) const {
  double gap = kNaN;
  size_t chunks = 0;
  bool early = false;
  const bool ran = gate.guarded(Fault::kProbe, [&] {
    const ScopedTimer timer(health.probe_nanoseconds);
    Taps::Pass pass(taps);
    pass.begin_probe(plan->context);
    const HostEvaluation evaluation(host);
    const ForwardFunction& attend = host.attention_forward ? host.attention_forward : host.forward;
    const int64_t quarter = (options.examples + 3) / 4;
    for (; chunks < plan->chunks.size() && !early;) {
      pass.expect_chunk(chunks);
      pass.forward(attend, plan->chunks[chunks].tokens);
      ++chunks;
      if (!whole && plan->examples_in(chunks) == quarter) early = taps.ask(chunks, decided);
    }
    if (!whole) return;
    pass.expect_null_rows();
    for (const at::Tensor& tokens : null_chunks) pass.forward(attend, tokens);
    pass.expect_repeat();
    gap = repeat_gap(pass.forward(host.forward, repeat.tokens), repeat);
  });
  std::shared_ptr<Capture> taken = taps.take();
  if (!ran || !taken) return nullptr;
  taken->repeat_gap = gap;
  taken->whole = !early;
  std::erase_if(taken->layers,
                [&](const auto& entry) { return entry.second.attention.size() != chunks; });
  return taken;
}

}  // namespace headscope
