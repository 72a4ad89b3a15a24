#include "csrc/monitor/analysis/spectra.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "headscope/measure.h"
#include "headscope/spectrum.h"

namespace headscope {
namespace {

/// Second moments in double, [H, D, D] each, times N; of a G about the shift c, with m = s / N:
/// centred = G - N m m^T, uncentred = centred + N (m + c)(m + c)^T. Both may be the same tensor,
/// which is left uncentred. In place, in as few passes as there can be: this is half of what the
/// eigenvalues cost.
void write_moments(const SpectrumCapture& spectrum, int64_t samples, at::Tensor uncentred,
                   const at::Tensor& centred) {
  const double n = static_cast<double>(samples);
  const at::Tensor about_shift = spectrum.sum.to(at::kDouble) / n;
  const at::Tensor mean = about_shift + spectrum.shift;
  centred.copy_(spectrum.gram);
  centred.addcmul_(about_shift.unsqueeze(2), about_shift.unsqueeze(1), -n);
  at::addcmul_out(uncentred, centred, mean.unsqueeze(2), mean.unsqueeze(1), n);
}

std::span<const double> row_of(const at::Tensor& values, int64_t row) {
  return {values.const_data_ptr<double>() + row * values.size(1),
          static_cast<size_t>(values.size(1))};
}
// Entries of the moments that are solved together: 16 MB of f64, as many matrices as fill a
// device's multiprocessors or a core's vectors many times over.
constexpr int64_t kMostMoments = int64_t{2} << 20;

/// A layer with samples; its matrices: the uncentred moments of its heads, the centred ones, and
/// the null's.
struct MeasuredSpectrum {
  LayerReadings readings;
  int64_t samples, null_samples;
  const at::Tensor& gram() const { return readings.layer->spectrum.gram; }
  int64_t heads() const { return gram().size(0); }
  int64_t matrices() const { return (null_samples > 0 ? 3 : 2) * heads(); }
  int64_t entries() const { return matrices() * gram().size(1) * gram().size(1); }
};

/// Figures of one layer from its matrices' eigenvalues (times N), values[first] and on.
void read_values(const MeasuredSpectrum& own, const at::Tensor& values, int64_t first) {
  for (size_t h = 0; h < own.readings.heads.size(); ++h) {
    HeadReading& reading = own.readings.heads[h];
    const int64_t row = first + static_cast<int64_t>(h);
    const auto uncentred = row_of(values, row), centred = row_of(values, row + own.heads());
    reading.samples = own.samples;
    reading.participation_ratio = participation_ratio(uncentred);
    reading.participation_ratio_quadratic = participation_ratio_quadratic(uncentred);
    reading.participation_ratio_centred = participation_ratio(centred);
    reading.participation_ratio_quadratic_centred = participation_ratio_quadratic(centred);
    if (own.null_samples > 0) {
      reading.null_participation_ratio = participation_ratio(row_of(values, row + 2 * own.heads()));
    }
    double trace = 0;
    for (const double value : uncentred) trace += value;
    const double n = static_cast<double>(own.samples);
    reading.output_norm = std::sqrt(std::max(0.0, trace / n));
    if (std::isnan(trace)) {
      reading.finite = false;
      reading.output_norm = kNaN;
      continue;
    }
    reading.eigenvalues.assign(uncentred.rbegin(), uncentred.rend());
    for (double& value : reading.eigenvalues) value /= n;
  }
}

/// Layers of one width on one device, all at once: the solver works on many matrices side by side.
void read_together(std::span<const MeasuredSpectrum> layers) {
  const at::Tensor& gram = layers.front().gram();
  int64_t matrices = 0, next = 0;
  for (const MeasuredSpectrum& own : layers) matrices += own.matrices();
  const at::Tensor moments =
      at::empty({matrices, gram.size(1), gram.size(1)}, gram.options().dtype(at::kDouble));
  for (const MeasuredSpectrum& own : layers) {
    const auto part = [&](int64_t n) {
      return moments.narrow(0, next + n * own.heads(), own.heads());
    };
    write_moments(own.readings.layer->spectrum, own.samples, part(0), part(1));
    if (own.null_samples > 0)
      write_moments(own.readings.layer->null_spectrum, own.null_samples, part(2), part(2));
    next += own.matrices();
  }
  // In f64 where that costs twice as much, in f32 on a device that has few units for it.
  const at::Tensor values = moments.is_cpu()
                                ? symmetric_eigenvalues(moments)
                                : symmetric_eigenvalues(moments.to(at::kFloat)).to(at::kCPU);
  next = 0;
  for (const MeasuredSpectrum& own : layers) {
    read_values(own, values, next);
    next += own.matrices();
  }
}

int64_t samples_of(const SpectrumCapture& spectrum) {
  return spectrum.empty() ? 0 : spectrum.count.item<int64_t>();
}

}  // namespace

std::vector<LayerReadings> read_spectra(const Capture& capture, std::span<HeadReading> heads) {
  std::vector<LayerReadings> layers;
  std::vector<MeasuredSpectrum> together;
  int64_t entries = 0;
  for (const auto& [index, layer] : capture.layers) {
    if (layer.spectrum.empty()) continue;
    const at::Tensor& gram = layer.spectrum.gram;
    const auto count = static_cast<size_t>(gram.size(0));
    layers.push_back({&layer, heads.first(count)});
    heads = heads.subspan(count);
    const int64_t samples = samples_of(layer.spectrum);
    if (samples == 0) continue;
    layers.back().most = static_cast<double>(std::min(samples, gram.size(1)));
    const MeasuredSpectrum own{layers.back(), samples, samples_of(layer.null_spectrum)};
    if (!together.empty() && (together.front().gram().size(1) != gram.size(1) ||
                              together.front().gram().device() != gram.device() ||
                              entries + own.entries() > kMostMoments)) {
      read_together(together);
      together.clear();
      entries = 0;
    }
    together.push_back(own);
    entries += own.entries();
  }
  if (!together.empty()) read_together(together);
  return layers;
}

}  // namespace headscope
