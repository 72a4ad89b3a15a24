#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

// The operators in double and plain loops without torch, straight from docs/math.md and
// headscope/measure.h; slow on purpose.
namespace headscope::reference {

/// Eigenvalues of a symmetric matrix [n, n], row-major, by cyclic Jacobi rotations; ascending. The
/// lower triangle is read.
inline std::vector<double> plain_eigenvalues(std::vector<double> a, int n) {
  const auto at = [&](int i, int j) -> double& {
    return a[static_cast<std::size_t>(std::max(i, j)) * static_cast<std::size_t>(n) +
             static_cast<std::size_t>(std::min(i, j))];
  };
  double total = 0;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) total += at(i, j) * at(i, j);
  // An off-diagonal square of total 1e-26 of all moves no eigenvalue by 1e-13 of the largest.
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0;
    for (int p = 0; p < n; ++p) {
      for (int q = p + 1; q < n; ++q) {
        const double pivot = at(p, q);
        off += pivot * pivot;
        if (pivot * pivot <= 1e-34 * total) continue;
        const double theta = (at(q, q) - at(p, p)) / (2 * pivot);
        const double t =
            (theta >= 0 ? 1.0 : -1.0) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (int i = 0; i < n; ++i) {
          if (i == p || i == q) continue;
          const double x = at(i, p), y = at(i, q);
          at(i, p) = c * x - s * y;
          at(i, q) = s * x + c * y;
        }
        at(p, p) -= t * pivot;
        at(q, q) += t * pivot;
        at(p, q) = 0;
      }
    }
    if (off <= 1e-26 * total) break;
  }
  std::vector<double> values;
  for (int i = 0; i < n; ++i) values.push_back(at(i, i));
  std::sort(values.begin(), values.end());
  return values;
}

/// One attention call, dense and in double. Letters as in headscope/measure.h.
struct PlainAttention {
  int batch = 1, query_heads = 1, key_heads = 1, queries = 1, keys = 1, width = 1;
  std::vector<double> q, k;  // [B, Hq, Tq, D], [B, Hkv, Tk, D]
  bool is_causal = true;
  double scale = 1, softcap = 0;
  int64_t window = 0;
  std::vector<int64_t> documents;  // [B, T]; empty: none
  std::vector<double> sinks;       // [Hq]; empty: none
  std::vector<double> bias;        // [B, Hq, Tq, Tk] added, -inf: masked; empty: none

  /// Pre-softmax scores of query (b, h, t), [Tk]; -inf where masked. `magnitude`, if given, becomes
  /// the largest sum of |q_i k_i| of a seen key, scaled: what rounding errors are relative to.
  std::vector<double> scores(int b, int h, int64_t t, double* magnitude = nullptr) const {
    const int key_head = h / (query_heads / key_heads);
    const double* query = q.data() + ((b * query_heads + h) * queries + t) * width;
    std::vector<double> out(static_cast<std::size_t>(keys), -INFINITY);
    if (magnitude != nullptr) *magnitude = 0;
    for (int64_t j = 0; j < keys; ++j) {
      if (is_causal && j > t) continue;
      if (window > 0 && std::abs(t - j) >= window) continue;
      const int64_t* document = documents.empty() ? nullptr : documents.data() + b * keys;
      if (document != nullptr && document[j] != document[t]) continue;
      const std::size_t at = static_cast<std::size_t>(
          ((static_cast<int64_t>(b) * query_heads + h) * queries + t) * keys + j);
      if (!bias.empty() && bias[at] == -INFINITY) continue;
      const double* key = k.data() + ((b * key_heads + key_head) * keys + j) * width;
      double dot = 0, absolute = 0;
      for (int i = 0; i < width; ++i) {
        dot += query[i] * key[i];
        absolute += std::abs(query[i] * key[i]);
      }
      double score = dot * scale;
      if (softcap > 0) score = softcap * std::tanh(score / softcap);
      if (!bias.empty()) score += bias[at];
      out[static_cast<std::size_t>(j)] = score;
      if (magnitude != nullptr) *magnitude = std::max(*magnitude, absolute * std::abs(scale));
    }
    return out;
  }

  double sink(int h) const {
    return sinks.empty() ? -INFINITY : sinks[static_cast<std::size_t>(h)];
  }
};

/// Figures of one softmax row with a sink; NaN where measure.h says so.
struct PlainRow {
  double max_logit = NAN, log_sum_exp = NAN, entropy = NAN, first_mass = NAN;

  PlainRow(const std::vector<double>& scores, double sink) {
    double top = -INFINITY;
    for (const double s : scores) {
      if (std::isnan(s) || s == INFINITY) return;
      top = std::max(top, s);
    }
    if (top == -INFINITY) {
      log_sum_exp = top;
      return;
    }
    if (std::isnan(sink) || sink == INFINITY) return;
    const double highest = std::max(top, sink);
    double total = std::exp(sink - highest);
    for (const double s : scores) total += std::exp(s - highest);
    max_logit = top;
    log_sum_exp = highest + std::log(total);
    entropy = 0;
    const auto add = [&](double s) {
      const double p = std::exp(s - log_sum_exp);
      if (p > 0) entropy -= p * (s - log_sum_exp);
    };
    for (const double s : scores) add(s);
    add(sink);
    first_mass = std::exp(scores[0] - log_sum_exp);
  }

  bool has_softmax() const { return std::isfinite(log_sum_exp); }
};

/// Mass and log-mean-exp of a group of target keys within a row.
struct PlainGroup {
  double mass = NAN, score = NAN;

  PlainGroup(const std::vector<double>& scores, const std::vector<int64_t>& targets,
             double log_sum_exp) {
    if (!std::isfinite(log_sum_exp)) return;
    double top = -INFINITY, total = 0;
    for (const int64_t j : targets) {
      if (j < 0 || j >= static_cast<int64_t>(scores.size())) return;
      top = std::max(top, scores[static_cast<std::size_t>(j)]);
    }
    mass = 0;
    score = top;
    if (top == -INFINITY) return;
    for (const int64_t j : targets) {
      total += std::exp(scores[static_cast<std::size_t>(j)] - top);
      mass += std::exp(scores[static_cast<std::size_t>(j)] - log_sum_exp);
    }
    score = top + std::log(total / static_cast<double>(targets.size()));
  }
};

}  // namespace headscope::reference
