#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "headscope/process.h"
#include "headscope/sink.h"

namespace headscope::exporter {

/// A sink that belongs to the process which made it. In a forked child publish(), close() and the
/// destructor return at once: the sink's threads are not there, its locks may never be released,
/// and its files are the parent's. What the child inherits of it is left as it lies.
template <typename Interface>
class ProcessBound : public Interface {
 public:
  explicit ProcessBound(std::unique_ptr<Interface> sink)
      : sink_(std::move(sink)), name_(sink_->name()) {}
  ~ProcessBound() override {
    if (inherited_) static_cast<void>(sink_.release());
  }
  ProcessBound(const ProcessBound&) = delete;
  ProcessBound& operator=(const ProcessBound&) = delete;

  std::string name() const override { return name_; }
  void publish(const std::shared_ptr<const Snapshot>& snapshot) override {
    if (!inherited_) sink_->publish(snapshot);
  }
  void close() override {
    if (!inherited_) sink_->close();
  }

 protected:
  /// For what never changes.
  const Interface& sink() const { return *sink_; }

 private:
  std::unique_ptr<Interface> sink_;
  const std::string name_;
  std::atomic<bool> inherited_ = false;
  const ForkRegistration registration_ = on_fork_child([this] { inherited_ = true; });
};

}  // namespace headscope::exporter
