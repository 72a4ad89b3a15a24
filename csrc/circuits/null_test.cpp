#include "headscope/null_test.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>

#include "csrc/circuits/intervals.h"
#include "headscope/snapshot.h"

namespace headscope {
namespace {

constexpr int64_t kLeastDraws = 999;
constexpr int64_t kMostDraws = 200000;
constexpr int64_t kEnoughReached = 20;  // Besag-Clifford: the p-value is known well enough
constexpr int64_t kBatch = 64;  // draws summed together, so that one block of heads stays in cache
constexpr size_t kLanes = 16;   // heads of a block: the inner loop runs over them
constexpr double kCountSlack = 1e-9;  // alpha * (draws + 1) is meant as an exact count
constexpr double kConstantHead =
    1e-10;  // a null sd below this part of the largest value is rounding

void validate(const CandidateTable& table, double alpha, int64_t draws) {
  const auto fail = [](const std::string& what) {
    throw std::invalid_argument("max_statistic_test: " + what);
  };
  if (table.rows < 0 || table.candidates < 0 || table.heads < 0) fail("a negative extent");
  const auto expected = static_cast<size_t>(table.rows * table.candidates * table.heads);
  if (table.values.size() != expected)
    fail(std::to_string(table.values.size()) +
         " values, but rows * candidates * heads = " + std::to_string(expected));
  if (table.target.size() != static_cast<size_t>(table.rows))
    fail(std::to_string(table.target.size()) + " targets for " + std::to_string(table.rows) +
         " rows");
  for (const int32_t target : table.target)
    if (target < 0 || target >= table.candidates)
      fail("target " + std::to_string(target) + " outside 0.." +
           std::to_string(table.candidates - 1));
  if (!(alpha > 0 && alpha < 1))
    fail("alpha is " + std::to_string(alpha) + ", give a level above 0 and below 1");
  if (draws < 0) fail("draws is " + std::to_string(draws) + ", give 0 (as many as needed) or more");
}

/// What one pass over a head's column of the table tells.
struct HeadScan {
  bool finite = true;  // no NaN, no +Inf, and one finite value at least
  float smallest = std::numeric_limits<float>::infinity();
  float largest_magnitude = 0;
};

std::vector<HeadScan> scan(const CandidateTable& table) {
  const auto heads = static_cast<size_t>(table.heads);
  std::vector<HeadScan> scans(heads);
  for (size_t i = 0; i < table.values.size(); i += heads) {
    for (size_t h = 0; h < heads; ++h) {
      const float value = table.values[i + h];
      if (std::isfinite(value)) {
        scans[h].smallest = std::min(scans[h].smallest, value);
        scans[h].largest_magnitude = std::max(scans[h].largest_magnitude, std::abs(value));
      } else if (!(value < 0)) {
        scans[h].finite = false;
      }
    }
  }
  for (auto& head : scans) head.finite = head.finite && std::isfinite(head.smallest);
  return scans;
}

/// The columns that a null draw can pick, and how often each is a target.
struct Columns {
  std::vector<size_t> candidate;  // ascending
  std::vector<double> weight;
  std::vector<size_t> of_row;  // column of each row's true target
};

Columns columns_of(const CandidateTable& table) {
  const auto candidates = static_cast<size_t>(table.candidates);
  std::vector<double> count(candidates, 0);
  for (const int32_t target : table.target) ++count[static_cast<size_t>(target)];
  Columns columns;
  std::vector<size_t> column_of(candidates);
  for (size_t c = 0; c < candidates; ++c) {
    if (count[c] == 0) continue;
    column_of[c] = columns.candidate.size();
    columns.candidate.push_back(c);
    columns.weight.push_back(count[c]);
  }
  for (const int32_t target : table.target)
    columns.of_row.push_back(column_of[static_cast<size_t>(target)]);
  return columns;
}

/// kLanes heads side by side: values[(row * columns + column) * kLanes + lane], and the moments of
/// their null.
struct Block {
  std::vector<size_t> heads;
  std::vector<float> values;
  std::vector<double> mean;        // of the sum over rows
  std::vector<double> inverse_sd;  // 0: the head is constant under the null
};

Block load_block(const CandidateTable& table, const Columns& columns, std::vector<size_t> heads,
                 const std::vector<HeadScan>& scans) {
  const size_t width = columns.candidate.size();
  Block block;
  block.values.assign(static_cast<size_t>(table.rows) * width * kLanes, 0);
  for (size_t row = 0; row < static_cast<size_t>(table.rows); ++row) {
    for (size_t column = 0; column < width; ++column) {
      const size_t from =
          (row * static_cast<size_t>(table.candidates) + columns.candidate[column]) *
          static_cast<size_t>(table.heads);
      float* to = &block.values[(row * width + column) * kLanes];
      for (size_t lane = 0; lane < heads.size(); ++lane) {
        const float value = table.values[from + heads[lane]];
        to[lane] = std::isfinite(value) ? value : scans[heads[lane]].smallest;
      }
    }
  }
  block.heads = std::move(heads);
  return block;
}

/// Exact mean and variance of the sum over rows, for one lane.
void add_moments(Block& block, size_t lane, const Columns& columns, size_t rows,
                 double largest_magnitude) {
  const size_t width = columns.candidate.size();
  double total_weight = 0;
  for (const double weight : columns.weight) total_weight += weight;
  const auto at = [&](size_t row, size_t column) {
    return static_cast<double>(block.values[(row * width + column) * kLanes + lane]);
  };
  std::vector<double> row_mean(rows, 0), column_mean(width, 0);
  double sum_of_means = 0;
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < width; ++j) {
      row_mean[i] += columns.weight[j] * at(i, j) / total_weight;
      column_mean[j] += at(i, j) / static_cast<double>(rows);
    }
    sum_of_means += row_mean[i];
  }
  const double grand = sum_of_means / static_cast<double>(rows);
  double variance = 0;
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < width; ++j) {
      const double centred = at(i, j) - row_mean[i] - column_mean[j] + grand;
      variance += columns.weight[j] * centred * centred;
    }
  }
  const double sd = rows > 1 ? std::sqrt(variance / (static_cast<double>(rows) - 1)) : 0;
  block.mean.push_back(sum_of_means);
  block.inverse_sd.push_back(sd > kConstantHead * largest_magnitude ? 1 / sd : 0);
}

/// Sums over rows of the values at `offsets`, all lanes at once.
void sum_rows(const float* values, const size_t* offsets, size_t rows, double* sums) {
  double lanes[kLanes] = {};
  for (size_t row = 0; row < rows; ++row) {
    const float* at = values + offsets[row];
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(at[lane]);
  }
  std::copy(lanes, lanes + kLanes, sums);
}

/// Permutes the rows' targets.
class NullDraw {
 public:
  NullDraw(const Columns& columns, uint64_t seed)
      : width_(columns.candidate.size()), order_(columns.of_row), engine_(seed) {}

  void next(size_t* offsets) {
    for (size_t row = order_.size(); row-- > 0;)
      std::swap(order_[row], order_[circuits::draw_below(engine_, row + 1)]);
    for (size_t row = 0; row < order_.size(); ++row)
      offsets[row] = (row * width_ + order_[row]) * kLanes;
  }

 private:
  size_t width_;
  std::vector<size_t> order_;
  std::mt19937_64 engine_;
};

int64_t draws_for(double alpha) {
  const double resolved = std::ceil(1 / alpha - kCountSlack);
  return resolved > static_cast<double>(kMostDraws)
             ? kMostDraws
             : std::max(kLeastDraws, static_cast<int64_t>(resolved));
}

/// The maxima of null draws, made until the answer is clear.
struct Maxima {
  std::vector<double> values;
  int64_t reached = 0;
};

Maxima draw_maxima(const std::vector<Block>& blocks, NullDraw draw, size_t rows, double max_z,
                   int64_t draws, StopDrawing stop) {
  Maxima maxima;
  std::vector<size_t> offsets(kBatch * rows);
  double sums[kLanes];
  while (static_cast<int64_t>(maxima.values.size()) < draws) {
    const int64_t batch = std::min(kBatch, draws - static_cast<int64_t>(maxima.values.size()));
    std::vector<double> largest(static_cast<size_t>(batch),
                                -std::numeric_limits<double>::infinity());
    for (size_t d = 0; d < largest.size(); ++d) draw.next(&offsets[d * rows]);
    for (const auto& block : blocks) {
      for (size_t d = 0; d < largest.size(); ++d) {
        sum_rows(block.values.data(), &offsets[d * rows], rows, sums);
        for (size_t lane = 0; lane < block.heads.size(); ++lane)
          if (block.inverse_sd[lane] > 0)
            largest[d] =
                std::max(largest[d], (sums[lane] - block.mean[lane]) * block.inverse_sd[lane]);
      }
    }
    for (const double value : largest) {
      maxima.values.push_back(value);
      maxima.reached += value >= max_z ? 1 : 0;
      if (stop == StopDrawing::kWhenClear && maxima.reached == kEnoughReached) return maxima;
    }
  }
  return maxima;
}

/// The floor(alpha (draws + 1))-th largest, at least the largest. NaN where drawing was stopped
/// before a rank of 1: the largest of a few draws is no critical value.
double critical_value(std::vector<double> maxima, double alpha, bool stopped) {
  const auto made = static_cast<double>(maxima.size());
  const auto rank = static_cast<int64_t>(std::floor(alpha * (made + 1) + kCountSlack));
  if (stopped && rank < 1) return kNaN;
  const auto nth = maxima.begin() + std::clamp<int64_t>(rank - 1, 0, std::ssize(maxima) - 1);
  std::nth_element(maxima.begin(), nth, maxima.end(), std::greater<>());
  return *nth;
}

}  // namespace

NullTestResult max_statistic_test(const CandidateTable& table, double alpha, uint64_t seed,
                                  int64_t draws, StopDrawing stop) {
  validate(table, alpha, draws);
  const auto heads = static_cast<size_t>(table.heads);
  const auto rows = static_cast<size_t>(table.rows);
  NullTestResult result;
  result.alpha = alpha;
  result.rows = table.rows;
  result.z.assign(heads, kNaN);
  result.excess.assign(heads, kNaN);
  result.beats.assign(heads, false);
  if (rows == 0 || heads == 0) return result;

  const auto scans = scan(table);
  const auto columns = columns_of(table);
  std::vector<size_t> true_offsets(rows);
  for (size_t row = 0; row < rows; ++row)
    true_offsets[row] = (row * columns.candidate.size() + columns.of_row[row]) * kLanes;

  std::vector<size_t> finite;
  for (size_t h = 0; h < heads; ++h)
    if (scans[h].finite) finite.push_back(h);
  std::vector<Block> blocks;
  bool any_varies = false;
  for (size_t from = 0; from < finite.size(); from += kLanes) {
    const auto begin = finite.begin() + static_cast<int64_t>(from);
    const auto end = finite.begin() + static_cast<int64_t>(std::min(from + kLanes, finite.size()));
    Block block = load_block(table, columns, {begin, end}, scans);
    double sums[kLanes];
    sum_rows(block.values.data(), true_offsets.data(), rows, sums);
    for (size_t lane = 0; lane < block.heads.size(); ++lane) {
      const size_t head = block.heads[lane];
      add_moments(block, lane, columns, rows, scans[head].largest_magnitude);
      result.excess[head] = (sums[lane] - block.mean[lane]) / static_cast<double>(rows);
      result.z[head] = (sums[lane] - block.mean[lane]) * block.inverse_sd[lane];
      if (block.inverse_sd[lane] == 0) continue;
      result.max_z = any_varies ? std::max(result.max_z, result.z[head]) : result.z[head];
      any_varies = true;
    }
    blocks.push_back(std::move(block));
  }
  if (!any_varies) return result;

  const int64_t wanted = draws > 0 ? draws : draws_for(alpha);
  const auto maxima =
      draw_maxima(blocks, NullDraw(columns, seed), rows, result.max_z, wanted, stop);
  result.draws = std::ssize(maxima.values);
  const auto made = static_cast<double>(result.draws);
  const bool stopped = result.draws < wanted;
  // Besag-Clifford's p where drawing was stopped, the plain one where it was not.
  const double count = static_cast<double>(maxima.reached) + (stopped ? 0 : 1);
  const double out_of = made + (stopped ? 0 : 1);
  result.p_value = count / out_of;
  result.significant = count <= alpha * out_of + kCountSlack;
  result.critical_z = critical_value(maxima.values, alpha, stopped);
  for (size_t h = 0; h < heads; ++h)
    result.beats[h] = result.significant && result.z[h] >= result.critical_z;
  return result;
}

double spent_alpha(double alpha_run, int64_t patterns, int64_t planned_probes, int64_t probe_number,
                   double least) {
  if (!(alpha_run > 0 && alpha_run < 1))
    throw std::invalid_argument("spent_alpha: alpha_run is " + std::to_string(alpha_run) +
                                ", give a level above 0 and below 1");
  if (patterns < 1 || planned_probes < 1 || probe_number < 1 || !(least > 0))
    throw std::invalid_argument("spent_alpha: patterns " + std::to_string(patterns) +
                                ", planned_probes " + std::to_string(planned_probes) +
                                ", probe_number " + std::to_string(probe_number) +
                                " must be 1 or more, least " + std::to_string(least) + " above 0");
  const auto cumulative = [&](int64_t n) {
    return alpha_run / static_cast<double>(patterns) * static_cast<double>(n) /
           static_cast<double>(n + planned_probes);
  };
  // From test to test: each spends `least` or more, so there are few, however many probes.
  constexpr double kRounding = 1e-9;
  double spent = 0;
  for (int64_t last = 0;;) {
    const double part = (spent + least) * static_cast<double>(patterns) / alpha_run;
    if (part >= 1) return 0;
    const double enough =
        std::ceil(static_cast<double>(planned_probes) * part / (1 - part) - kRounding);
    if (enough > static_cast<double>(probe_number)) return 0;
    const int64_t test = std::max(last + 1, static_cast<int64_t>(enough));
    if (test >= probe_number) return test == probe_number ? cumulative(test) - spent : 0;
    spent = cumulative(test);
    last = test;
  }
}

}  // namespace headscope
