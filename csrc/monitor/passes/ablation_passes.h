#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/monitor/passes/behaviour.h"
#include "csrc/monitor/passes/host_evaluation.h"
#include "csrc/monitor/taps/head_ablation.h"
#include "csrc/monitor/taps/taps.h"

namespace headscope {

/// How heads are replaced; the fields of AblationRequest.
struct ReplacementPlan {
  Replacement replacement = Replacement::kZero;
  AblatedPositions positions = AblatedPositions::kAll;
  at::Tensor reference;
  uint32_t resample_seed = 1;
};

/// The passes of an ablation over one batch: the one way in which headscope ablates and measures
/// what comes of it. While one lives the user's model is in evaluation. Thread: training. Throws
/// what the user's model throws, std::runtime_error when it gives no logits or a layer is missing.
class AblationPasses {
 public:
  /// The host and the batch must outlive it.
  AblationPasses(Taps& taps, const ProbeHost& host, const AblationBatch& batch,
                 ReplacementPlan plan = {});

  /// Loss of each of the first `examples` rows (0: all) with heads ablated, in nats, in f64.
  std::vector<double> losses(const std::vector<HeadId>& heads, size_t examples = 0);
  /// All measures of it.
  AblationPass measures(const std::vector<HeadId>& heads, size_t examples = 0);
  /// The measures without ablation; learns which heads there are, and their norms and means.
  AblationPass baseline();

  /// As HeadAblation's, after baseline().
  const std::map<int64_t, int64_t>& heads_in() const { return ablation_.heads_in(); }
  double norm(HeadId id) const { return ablation_.norm(id); }

 private:
  AblationPass run(const std::vector<HeadId>& heads, size_t examples, bool all_measures);
  /// What is learnt anew for a pass (means of a reference, once) and for a chunk (other rows).
  void learn_means_of_reference();
  void learn_rows(const std::vector<HeadId>& heads, int64_t begin, int64_t count);
  void score(int64_t begin, int64_t count, bool all_measures, AblationPass& pass);

  const ProbeHost& host_;
  const AblationBatch& batch_;
  const ReplacementPlan plan_;
  const ForwardFunction forward_;  // announced to the watch
  int64_t run_of_ = -1;  // first scored position, where all rows score the same run of them
  int64_t largest_target_ = -1;
  at::Tensor partners_;  // [N] rows that outputs are taken from
  bool learns_ = false;
  bool learnt_reference_ = false;
  HeadAblation ablation_;  // outlives the pass
  Taps::Pass pass_;
  const HostEvaluation evaluation_;
};

}  // namespace headscope
