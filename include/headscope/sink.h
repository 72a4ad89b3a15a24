#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "headscope/export.h"
#include "headscope/snapshot.h"

namespace headscope {

/// Receives snapshots on the monitor's sink thread, in order; never called from the training
/// thread.
///
/// May throw: the exception is caught, counted as error kind "sink", logged the first time, and the
/// next snapshot is tried again. May be slow: snapshots beyond the queue's bound
/// (Options::sink_queue) are dropped and counted.
class HEADSCOPE_API Sink {
 public:
  virtual ~Sink() = default;
  /// A short name for log lines, e.g. "history".
  virtual std::string name() const = 0;
  /// One snapshot. The pointee never changes; keep the pointer as long as needed.
  virtual void publish(const std::shared_ptr<const Snapshot>& snapshot) = 0;
  /// Called once when the monitor closes, after the last publish; must return within about a
  /// second.
  virtual void close() {}
};

}  // namespace headscope
