#pragma once

#include <span>
#include <vector>

#include "csrc/monitor/taps/capture.h"
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

}  // namespace headscope
