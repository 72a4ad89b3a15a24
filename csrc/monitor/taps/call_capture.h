#pragma once

#include <cstdint>
#include <vector>

#include "csrc/monitor/edge/health.h"
#include "csrc/monitor/taps/capture.h"
#include "csrc/monitor/taps/tapped_call.h"

// What is measured of one attention call, by what the forward is. The call is checked.
namespace headscope {

/// How training forwards are sampled.
struct TrainSampling {
  std::vector<Pattern> patterns;
  int64_t rows = 16;  ///< query positions a sequence
  uint64_t seed = 0;
  bool self_check = true;
};

/// A training forward's. ids: told by this thread for the step's micro-batches, in order.
void capture_train(Capture& capture, const TappedCall& tapped, const std::vector<at::Tensor>& ids,
                   int64_t step, const TrainSampling& sampling, FaultGate& gate);

/// The same of the probe's forwards: a chunk of planted rows, random tokens, the repeated block.
void capture_chunk(LayerCapture& own, const TappedCall& tapped, const ProbePlan& plan, size_t chunk,
                   bool self_check, FaultGate& gate);
void capture_null_rows(LayerCapture& own, const TappedCall& tapped);
void capture_repeat(LayerCapture& own, const TappedCall& tapped, const RepeatPlan& repeat);

}  // namespace headscope
