#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "csrc/monitor/analysis/state_codec.h"
#include "csrc/monitor/monitor_impl.h"

namespace headscope {
namespace {

constexpr double kSinkSeconds = 5;  // that state_dict gives the sinks

at::Tensor bytes_to_tensor(const std::string& bytes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), tensor.data_ptr<uint8_t>());
  return tensor;
}

std::string tensor_to_bytes(const StateDict& state, const char* key) {
  const auto entry = state.find(key);
  if (entry == state.end())
    throw std::runtime_error(std::string("headscope: the state has no entry '") + key + "'");
  if (entry->second.scalar_type() != at::kByte) {
    throw std::runtime_error(std::string("headscope: the state's '") + key + "' is not bytes");
  }
  const at::Tensor bytes = entry->second.cpu().contiguous();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

template <typename Number>
std::vector<Number> numbers_of(const StateDict& state, const char* key, at::ScalarType type) {
  const auto entry = state.find(key);
  if (entry == state.end())
    throw std::runtime_error(std::string("headscope: the state has no entry '") + key + "'");
  const at::Tensor values = entry->second.to(at::kCPU, type).contiguous();
  const Number* data = values.const_data_ptr<Number>();
  return {data, data + values.numel()};
}

}  // namespace

StateDict Monitor::Impl::state_dict() {
  refuse_inherited();
  analysis_thread.drain();
  // What this state takes for told must outlive a kill right after: no resumed run tells it again.
  if (!closed) {
    gate->guarded(Fault::kAnalysis, [&] { analysis.flush(steps.current()); });
    sinks.flush(kSinkSeconds);
  }
  const Steps::Saved saved = steps.save();
  const std::optional<Verification>& verification = ablations.in_progress();
  return {{"analysis", bytes_to_tensor(analysis.save())},
          {"schedule", at::tensor(saved.schedule, at::kDouble)},
          {"budget", at::tensor(saved.budget, at::kDouble)},
          {"verification", bytes_to_tensor(verification ? encode(*verification) : "")},
          {"layers", at::tensor(layers.save(), at::kLong)}};
}

void Monitor::Impl::load_state_dict(const StateDict& state) {
  refuse_inherited();
  analysis_thread.drain();
  // Everything is read before anything is changed: a state that is refused leaves the monitor as it
  // was.
  const std::string analysed = tensor_to_bytes(state, "analysis"),
                    verification = tensor_to_bytes(state, "verification");
  const Steps::Saved saved{numbers_of<double>(state, "schedule", at::kDouble),
                           numbers_of<double>(state, "budget", at::kDouble)};
  const auto known_layers = numbers_of<int64_t>(state, "layers", at::kLong);
  Steps::State at_step = steps.decoded(saved);
  std::optional<Verification> in_progress;
  if (!verification.empty()) in_progress = decode_verification(verification);
  analysis.load(analysed, at_step.next_step);
  steps.restore(std::move(at_step));
  ablations.restore(std::move(in_progress));
  layers.restore(known_layers);
}

}  // namespace headscope
