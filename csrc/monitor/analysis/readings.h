#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/monitor/taps/capture.h"
#include "headscope/circuits.h"
#include "headscope/snapshot.h"

namespace headscope {

/// A layer and the readings of its heads.
struct LayerReadings {
  const LayerCapture* layer;
  std::span<HeadReading> heads;
  double most = kNaN;  ///< the largest possible PR, min(N, D); NaN without a sample
};

/// Spectrum figures of every layer that has a spectrum: heads in the order of the layers, as many
/// as these have. With a null spectrum, the PR of that too.
std::vector<LayerReadings> read_spectra(const Capture& capture, std::span<HeadReading> heads);

/// Pattern, entropy, logit and sink figures of a layer from the training batch's sampled rows.
void read_train_attention(const LayerCapture& layer, const std::vector<TrainPlan>& plans,
                          std::span<const Pattern> patterns, std::span<HeadReading> readings);

/// The same from the probe.
void read_probe_attention(const LayerCapture& layer, const ProbePlan& plan,
                          std::span<HeadReading> readings);

/// Which of a pattern's two tests a probe is to make.
struct NullsWanted {
  bool margin = true;
  bool mass = true;
};

/// Family-wise null tests of every pattern over all layers whose attention can be trusted, in the
/// order of `readings` (heads left out get z = NaN). Also fills margin_z and mass_z of the
/// readings.
std::vector<PatternNulls> test_nulls(const Capture& capture, const ProbePlan& plan,
                                     std::span<const NullsWanted> wanted, double alpha,
                                     uint64_t seed, std::span<HeadReading> readings);

}  // namespace headscope
