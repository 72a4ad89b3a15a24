#include "csrc/monitor/analysis/hand_over.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace headscope {

HandOver::HandOver(Capture& capture, bool spectra_stay) {
  for (auto& [layer, own] : capture.layers) {
    if (!own.spectrum.empty()) {
      const c10::Device device = own.spectrum.gram.device();
      if (!device.is_cpu() && std::find(devices_.begin(), devices_.end(), device) == devices_.end())
        devices_.push_back(device);
    }
    if (!spectra_stay) {
      to_host(own.spectrum);
      to_host(own.null_spectrum);
    }
    for (AttentionRows& rows : own.attention) to_host(rows);
    for (AttentionRows& rows : own.query_attention) to_host(rows);
    if (own.repeat) to_host(*own.repeat);
    to_host(own.sinks);
    to_host(own.self_check.given);
    to_host(own.self_check.recomputed);
  }
  for (const c10::Device device : devices_) {
    copied_.emplace_back(device.type());
    copied_.back().record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
}

void HandOver::to_host(at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return;
  at::Tensor host =
      at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
  host.copy_(tensor, /*non_blocking=*/true);
  tensor = std::move(host);
}

void HandOver::to_host(SpectrumCapture& spectrum) {
  for (at::Tensor* tensor : {&spectrum.gram, &spectrum.sum, &spectrum.count, &spectrum.shift})
    to_host(*tensor);
}

void HandOver::to_host(AttentionRows& rows) {
  for (at::Tensor* tensor : {&rows.mass, &rows.score, &rows.entropy, &rows.max_logit,
                             &rows.log_sum_exp, &rows.first_mass})
    to_host(*tensor);
}

std::unique_ptr<HandOver::Reading> HandOver::arrived() {
  for (const c10::Event& event : copied_) event.synchronize();
  return std::make_unique<Reading>(*this);
}

HandOver::Reading::Reading(const HandOver& hand_over) {
  for (const c10::Device device : hand_over.devices_) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    before_.push_back(guard.exchangeStream(guard.getStreamFromGlobalPool(device)));
  }
}

HandOver::Reading::~Reading() {
  for (const c10::Stream& stream : before_)
    c10::impl::VirtualGuardImpl(stream.device_type()).exchangeStream(stream);
}

}  // namespace headscope
