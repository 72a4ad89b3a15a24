#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "headscope/measure.h"

// The operators again in double and plain loops, straight from docs/math.md; slow on purpose.
namespace headscope::reference {

/// sum (z - shift)(z - shift)^T over kept tokens, [H, D, D] f64; `z` [B, H, T, D] any dtype and
/// strides.
inline at::Tensor gram(const at::Tensor& z_any, const at::Tensor& shift_any,
                       const std::optional<at::Tensor>& keep) {
  const at::Tensor z = z_any.to(at::kDouble).contiguous(),
                   shift = shift_any.to(at::kDouble).contiguous();
  const int64_t batch = z.size(0), heads = z.size(1), tokens = z.size(2), width = z.size(3);
  at::Tensor out = at::zeros({heads, width, width}, at::kDouble);
  const double* x = z.const_data_ptr<double>();
  const double* c = shift.const_data_ptr<double>();
  double* g = out.data_ptr<double>();
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t t = 0; t < tokens; ++t) {
        if (keep && !(*keep)[b][t].item<bool>()) continue;
        const double* row = x + ((b * heads + h) * tokens + t) * width;
        for (int64_t i = 0; i < width; ++i) {
          for (int64_t j = 0; j < width; ++j) {
            g[(h * width + i) * width + j] +=
                (row[i] - c[h * width + i]) * (row[j] - c[h * width + j]);
          }
        }
      }
    }
  }
  return out;
}

/// Pre-softmax scores of query (b, h, t), [Tk]; -inf where masked.
inline std::vector<double> scores(const at::Tensor& q, const at::Tensor& k, int64_t b, int64_t h,
                                  int64_t t, const AttentionCall& call) {
  const int64_t keys = k.size(2), width = q.size(3), key_head = h / (q.size(1) / k.size(1));
  const at::Tensor query = q[b][h][t].to(at::kDouble).contiguous(),
                   key = k[b][key_head].to(at::kDouble).contiguous();
  const double scale = call.scale.value_or(1 / std::sqrt(static_cast<double>(width)));
  std::vector<double> out(static_cast<size_t>(keys), -std::numeric_limits<double>::infinity());
  at::Tensor mask = at::zeros({keys}, at::kDouble);
  if (call.bias) {
    const at::Tensor row =
        call.bias->expand({q.size(0), q.size(1), q.size(2), keys})[b][h][t].to(at::kDouble);
    mask = (call.bias->scalar_type() == at::kBool ? row.log() : row).contiguous();
  }
  const at::Tensor documents = call.documents ? (*call.documents)[b].contiguous() : at::Tensor();
  for (int64_t j = 0; j < keys; ++j) {
    if (call.is_causal && j > t) continue;
    if (call.window > 0 && std::abs(t - j) >= call.window) continue;
    const int64_t* document = documents.defined() ? documents.const_data_ptr<int64_t>() : nullptr;
    if (document != nullptr && document[j] != document[t]) continue;
    double dot = 0;
    for (int64_t i = 0; i < width; ++i)
      dot += query.const_data_ptr<double>()[i] * key.const_data_ptr<double>()[j * width + i];
    double score = dot * scale;
    if (call.softcap > 0) score = call.softcap * std::tanh(score / call.softcap);
    out[static_cast<size_t>(j)] = score + mask.const_data_ptr<double>()[j];
  }
  return out;
}

/// The sink's logit of query head h; -inf: none.
inline double sink(const AttentionCall& call, int64_t h) {
  return call.sinks ? (*call.sinks)[h].item<double>() : -std::numeric_limits<double>::infinity();
}

/// softmax of a row, one more entry at its end: the sink's share; all masked gives zeros.
inline std::vector<double> softmax(std::vector<double> s, double sink_logit) {
  s.push_back(sink_logit);
  double top = -std::numeric_limits<double>::infinity(), total = 0;
  for (const double value : s) top = std::max(top, value);
  std::vector<double> p(s.size(), 0.0);
  if (!std::isfinite(top)) return p;
  for (size_t j = 0; j < s.size(); ++j) total += p[j] = std::exp(s[j] - top);
  for (double& value : p) value /= total;
  return p;
}

/// Output of query (b, h, t), [Dv] f64; without a key to see: zeros.
inline at::Tensor output_row(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             int64_t b, int64_t h, int64_t t, const AttentionCall& call) {
  const auto p = softmax(scores(q, k, b, h, t, call), sink(call, h));
  const at::Tensor value = v[b][h / (q.size(1) / k.size(1))].to(at::kDouble);
  at::Tensor out = at::zeros({v.size(3)}, at::kDouble);
  for (int64_t j = 0; j < k.size(2); ++j) {
    if (p[static_cast<size_t>(j)] > 0) out.add_(value[j] * p[static_cast<size_t>(j)]);
  }
  return out;
}

/// Eigenvalues of a symmetric matrix [n, n] by cyclic Jacobi rotations, ascending.
inline std::vector<double> eigenvalues(const at::Tensor& matrix) {
  const at::Tensor copy = matrix.to(at::kDouble).contiguous().clone();
  const int64_t n = copy.size(0);
  double* a = copy.data_ptr<double>();
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0;
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        off += a[p * n + q] * a[p * n + q];
        if (a[p * n + q] == 0) continue;
        const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
        const double t =
            (theta >= 0 ? 1.0 : -1.0) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (int64_t i = 0; i < n; ++i) {
          const double x = a[i * n + p], y = a[i * n + q];
          a[i * n + p] = c * x - s * y;
          a[i * n + q] = s * x + c * y;
        }
        for (int64_t i = 0; i < n; ++i) {
          const double x = a[p * n + i], y = a[q * n + i];
          a[p * n + i] = c * x - s * y;
          a[q * n + i] = s * x + c * y;
        }
      }
    }
    if (off == 0) break;
  }
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(a[i * n + i]);
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace headscope::reference
