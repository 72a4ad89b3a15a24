#include "csrc/monitor/hand_over.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace headscope {

HandOver::HandOver(Capture& capture, bool spectra_stay) {
  for (auto& [layer, own] : capture.layers) {
    if (!device_ && !own.spectrum.empty() && !own.spectrum.gram.is_cpu())
      device_ = own.spectrum.gram.device();
    if (!spectra_stay) {
      to_host(own.spectrum);
      to_host(own.null_spectrum);
    }
    for (AttentionRows& rows : own.attention) to_host(rows);
    if (own.repeat) to_host(*own.repeat);
    to_host(own.sinks);
    to_host(own.self_check);
  }
  if (!device_) return;
  copied_.emplace(device_->type());
  copied_->record(c10::impl::VirtualGuardImpl(device_->type()).getStream(*device_));
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
  if (copied_) copied_->synchronize();
  return std::make_unique<Reading>(*this);
}

HandOver::Reading::Reading(const HandOver& hand_over) {
  if (!hand_over.device_) return;
  const c10::impl::VirtualGuardImpl device(hand_over.device_->type());
  before_ = device.exchangeStream(device.getStreamFromGlobalPool(*hand_over.device_));
}

HandOver::Reading::~Reading() {
  if (before_) c10::impl::VirtualGuardImpl(before_->device_type()).exchangeStream(*before_);
}

}  // namespace headscope
