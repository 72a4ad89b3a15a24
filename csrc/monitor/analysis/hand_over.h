#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

#include "csrc/monitor/taps/capture.h"

namespace headscope {

/// A capture on its way from the device to the analysis thread. On the CPU there is nothing to do.
///
/// Made on the training thread: the capture's tensors are replaced by pinned host copies that are
/// enqueued behind the measurement on its own stream, so the training thread waits for nothing.
/// spectra_stay: the second moments stay where they are, for eigenvalues on the device.
class HandOver {
 public:
  HandOver(Capture& capture, bool spectra_stay);

  /// Holds while the analysis thread reads the capture: work that it starts on the device runs on a
  /// stream of its own.
  class Reading {
   public:
    explicit Reading(const HandOver& hand_over);
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    std::vector<c10::Stream> before_;
  };

  /// On the analysis thread: waits until all copies are there.
  std::unique_ptr<Reading> arrived();

 private:
  void to_host(at::Tensor& tensor);
  void to_host(SpectrumCapture& spectrum);
  void to_host(AttentionRows& rows);

  std::vector<c10::Device> devices_;  // that the capture was on; none: the host alone
  std::vector<c10::Event> copied_;    // one a device
};

}  // namespace headscope
