#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "csrc/monitor/passes/probe_setup.h"
#include "csrc/monitor/taps/taps.h"
#include "plugin/torch/sdpa_override.h"
#include "plugin/torch/seen_call.h"

namespace headscope {

/// Sees a model's attention calls from outside and hands them to the monitor's tap, numbered by
/// call order.
class ZeroEdit final : public CallWatch, private CallObserver {
 public:
  /// Learns the calls of one forward of the probe. Throws as Monitor::attach_zero_edit says.
  ZeroEdit(Taps& taps, const ProbeSetup& probe, FaultGate& gate, int64_t layers);
  ~ZeroEdit() override;

  const std::vector<AttentionSite>& sites() const { return sites_; }

  void measuring(bool on) noexcept override;
  void forward_begins() noexcept override;

 private:
  at::Tensor seen(SeenCall call) noexcept override;
  int64_t heads_of_next(int64_t merged) const noexcept override;

  void learn_forward(const ProbeSetup& probe);
  void learn(const SeenCall& call);
  at::Tensor measure(SeenCall& call);
  void watch(bool on);
  /// What is wrong with a call at its place, empty when nothing is.
  std::string difference(const SeenCall& call) const;

  Taps& taps_;
  FaultGate& gate_;
  std::shared_ptr<SdpaOverride> override_;
  std::vector<AttentionSite> sites_;
  bool uses_sdpa_ = true, uses_eager_ = true;
  bool learning_ = false;
  int64_t learning_rows_ = 0;
  std::atomic<bool> watching_{false};
  bool lost_ = false;       // the order of this forward is not the learnt one
  size_t next_ = 0;         // site of the next call
  size_t forwards_ = 0;     // whole ones of this measurement
  std::thread::id thread_;  // the one that watches
};

}  // namespace headscope
