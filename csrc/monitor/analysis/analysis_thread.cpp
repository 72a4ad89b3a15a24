#include "csrc/monitor/analysis/analysis_thread.h"

#include <ATen/ATen.h>

#include "csrc/measure/one_core.h"
#include "csrc/monitor/analysis/hand_over.h"
#include "csrc/monitor/taps/self_check.h"

namespace headscope {
namespace {

/// Withholds the attention figures of layers whose self-check failed, and says so.
void judge_self_checks(Capture& taken, FaultGate& gate) {
  for (auto& [layer, own] : taken.layers) {
    if (own.self_check.empty()) continue;
    const double error = self_check_error(own.self_check);
    // NaN: not finite, counted with the readings.
    if (!(error > self_check_tolerance(own.type))) continue;
    own.attention_trusted = false;
    gate.report(
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

}  // namespace

AnalysisThread::AnalysisThread(Analysis& analysis, const Options& options, HealthCounters& health,
                               FaultGate& gate)
    : analysis_(analysis),
      health_(health),
      gate_(gate),
      eigenvalues_on_device_(options.eigenvalues_on_device) {}

void AnalysisThread::submit(std::shared_ptr<Capture> taken, const CaptureInfo& info,
                            Source source) {
  std::shared_ptr<HandOver> hand_over;
  const bool handed = gate_.guarded(source == Source::kTrain ? Fault::kTap : Fault::kProbe, [&] {
    hand_over = std::make_shared<HandOver>(*taken, eigenvalues_on_device_);
  });
  if (!handed) return;
  worker_.submit([this, taken = std::move(taken), hand_over, info, source] {
    const AnalysisTimer timer(health_);
    gate_.guarded(Fault::kAnalysis, [&] {
      const measure::OneCore one_core;
      const auto reading = hand_over->arrived();
      judge_self_checks(*taken, gate_);
      source == Source::kProbe ? analysis_.take_probe(*taken, info)
                               : analysis_.take_train(*taken, info);
    });
  });
}

}  // namespace headscope
