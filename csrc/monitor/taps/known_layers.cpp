#include "csrc/monitor/taps/known_layers.h"

#include <string>

namespace headscope {

bool KnownLayers::reported(const Capture& taken, const Words& words, HealthCounters& health,
                           FaultGate& gate) {
  if (taken.layers.empty() && known_.empty()) {
    gate.log(LogLevel::kWarning, words.silent, words.silent_key);
    return false;
  }
  std::string missing;
  for (const int64_t layer : known_) {
    if (taken.layers.contains(layer)) continue;
    health.taps_missing.fetch_add(1, std::memory_order_relaxed);
    missing += (missing.empty() ? "" : ", ") + std::to_string(layer);
  }
  if (!missing.empty()) {
    gate.log(LogLevel::kWarning,
             std::string("layers ") + missing + " did not report during " + words.where +
                 " (counted in headscope_taps_missing_total)",
             "missing");
  }
  for (const auto& [layer, own] : taken.layers) known_.insert(layer);
  count_.store(static_cast<int64_t>(known_.size()));
  return !taken.layers.empty();
}

void KnownLayers::restore(const std::vector<int64_t>& layers) {
  known_ = {layers.begin(), layers.end()};
  count_.store(static_cast<int64_t>(layers.size()));
}

}  // namespace headscope
