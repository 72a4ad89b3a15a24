#pragma once

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "csrc/measure/simd/attention_mass.h"
#include "csrc/measure/simd/attention_vectors.h"

// How keys pass by the sampled rows of one key head; attention_mass.cpp says what is kept of it.
namespace headscope::simd {

inline constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Up to so many query rows of a key head are cheaper as dot products than as a panel whose other
// lanes idle.
inline constexpr int64_t kFewLines = 4;
inline constexpr int64_t kPanelChunk = 64;          // keys whose scores are held, one row a lane
inline constexpr int64_t kLineChunk = 1024;         // the same, keys across the lanes
inline constexpr int64_t kLineBlock = 64;           // keys that stay in the first-level cache
inline constexpr int64_t kKeyBytes = 16 << 10;      // of widened keys
inline constexpr int64_t kPanelBytes = 28 << 10;    // of the queries, scores and outputs of a pass
inline constexpr int64_t kScratchBytes = 64 << 10;  // of all of it, for D and Dv up to 256
inline constexpr int64_t kStateBytes = 3 << 10;     // of what is kept of the lines of a pass

/// One sampled row of one query head and the keys it may see.
struct Line {
  int64_t sampled, head, query, begin, end;
};

/// Finds the used rows of every query head that reads one key head, those that end early first:
/// rows of a panel then see much the same keys.
inline void find_lines(const RowsCall& call, int64_t b, int64_t key_head,
                       std::vector<Line>* lines) {
  lines->clear();
  const int64_t group = call.heads / call.key_heads;
  for (int64_t r = 0; r < call.sampled; ++r) {
    const int64_t t = call.positions[b * call.sampled + r];
    if (t == -1) continue;
    const int64_t end = std::min(call.is_causal ? t + 1 : t + call.window, call.keys);
    const int64_t begin = std::min(std::max<int64_t>(t + 1 - call.window, 0), end);
    for (int64_t h = key_head * group; h < (key_head + 1) * group; ++h)
      lines->push_back({r, h, t, begin, end});
  }
  std::sort(lines->begin(), lines->end(), [](const Line& x, const Line& y) {
    return std::tie(x.query, x.sampled, x.head) < std::tie(y.query, y.sampled, y.head);
  });
}

inline int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/// How the rows of one key head are dealt with: an owner of scores is a panel of query rows (one a
/// lane) or a single row (its keys across the lanes).
struct Plan {
  bool by_panel, in_place;
  int64_t lanes, lines_per_owner, owners, chunk, key_block, padded_width;
};

template <typename Sum>
Plan make_plan(const RowsCall& call, int64_t lines, int64_t value_width) {
  const int64_t lanes = attention_kernels<Sum>().lanes;
  constexpr int64_t kSize = sizeof(Sum);
  Plan plan;
  plan.lanes = lanes;
  plan.by_panel = lines > kFewLines;
  plan.padded_width = plan.by_panel ? call.width : round_up(call.width, lanes);
  const bool same_type =
      call.element == (std::is_same_v<Sum, double> ? Element::kF64 : Element::kF32);
  // Panels read a key one element at a time, which wants them side by side.
  plan.in_place =
      same_type && !plan.by_panel && call.k.width == 1 && plan.padded_width == call.width;
  plan.chunk = plan.by_panel ? kPanelChunk : kLineChunk;
  plan.lines_per_owner = plan.by_panel ? lanes : 1;
  const int64_t owner_bytes = plan.lines_per_owner * (kSize * (plan.padded_width + plan.chunk) +
                                                      value_width * int64_t{sizeof(double)}) +
                              int64_t{sizeof(OnlineSoftmax<Sum>)};
  const int64_t most = plan.by_panel ? std::max<int64_t>(1, kPanelBytes / owner_bytes) : kFewLines;
  plan.owners = std::min(most, (lines + plan.lines_per_owner - 1) / plan.lines_per_owner);
  // Wide vectors make wide panels: the keys have what those leave.
  const int64_t left =
      kScratchBytes - kStateBytes - plan.owners * owner_bytes - lines * int64_t{sizeof(Line)};
  plan.key_block = plan.in_place
                       ? kLineBlock
                       : std::clamp<int64_t>(std::min(kKeyBytes, left) /
                                                 (std::max<int64_t>(plan.padded_width, 1) * kSize),
                                             1, plan.chunk);
  return plan;
}

/// What one line's scores come to.
struct RowSums {
  double max, log_sum_exp, entropy;
};

/// Scores of one owner against keys [begin, begin + count): key j of line l at
/// scores[j * key_step + l].
template <typename Sum>
struct Chunk {
  int64_t owner, begin, count;
  int64_t first_line, lines;  // of the pass
  int64_t key_step;
  Sum* scores;
};

/// Streams the keys of one key head after another past passes of its lines.
template <typename Sum>
class RowStream {
 public:
  /// For key heads of `lines` lines each.
  RowStream(const RowsCall& call, int64_t lines, int64_t value_width)
      : call_(call),
        kernels_(attention_kernels<Sum>()),
        plan_(make_plan<Sum>(call, lines, value_width)),
        query_size_(plan_.lines_per_owner * plan_.padded_width),
        score_size_(plan_.lines_per_owner * plan_.chunk),
        queries_(hwy::AllocateAligned<Sum>(static_cast<size_t>(plan_.owners * query_size_))),
        scores_(hwy::AllocateAligned<Sum>(static_cast<size_t>(plan_.owners * score_size_))),
        row_(hwy::AllocateAligned<Sum>(
            static_cast<size_t>(std::max(plan_.padded_width, plan_.chunk)))),
        softmax_(static_cast<size_t>(plan_.owners)) {
    std::fill_n(scores_.get(), plan_.owners * score_size_, Sum{0});
    if (!plan_.in_place)
      keys_ = hwy::AllocateAligned<Sum>(static_cast<size_t>(plan_.key_block * plan_.padded_width));
  }

  /// Bytes that a stream of this plan holds.
  static int64_t bytes(const Plan& plan) {
    const int64_t per_owner = plan.lines_per_owner * (plan.padded_width + plan.chunk),
                  row = std::max(plan.padded_width, plan.chunk),
                  keys = plan.in_place ? 0 : plan.key_block * plan.padded_width;
    return (plan.owners * per_owner + row + keys) * int64_t{sizeof(Sum)} +
           plan.owners * int64_t{sizeof(OnlineSoftmax<Sum>)};
  }

  /// Key head number `head` of all sequences; its keys are followed by those of the next one.
  void begin_head(int64_t head, bool has_next) {
    batch_ = head / call_.key_heads;
    key_offset_ = offset_of(head);
    const bool begins_at_0 = call_.window >= call_.keys;
    next_keys_ = plan_.in_place && call_.k.token == call_.width && begins_at_0 && has_next
                     ? static_cast<const Sum*>(call_.k.data) + offset_of(head + 1)
                     : nullptr;
  }

  int64_t lines_per_pass() const { return plan_.owners * plan_.lines_per_owner; }

  /// Packs the queries of `count` lines and forgets the sums of those before.
  void begin_pass(const Line* lines, int64_t count) {
    lines_ = lines;
    count_ = count;
    has_scores_ = false;
    std::fill_n(queries_.get(), plan_.owners * query_size_, Sum{0});
    visit_elements(call_.q.data, call_.element, 0, [&](const auto* data) {
      for (int64_t l = 0; l < count; ++l) {
        const int64_t offset =
            batch_ * call_.q.batch + lines[l].head * call_.q.head + lines[l].query * call_.q.token;
        kernels_.widen_rows(data + offset, call_.element, 0, call_.q.width, 1, 0, call_.width,
                            plan_.padded_width, row_.get());
        const int64_t lane = l % plan_.lines_per_owner;
        Sum* target = queries_.get() + l / plan_.lines_per_owner * query_size_ + lane;
        for (int64_t i = 0; i < plan_.padded_width; ++i)
          target[i * plan_.lines_per_owner] = row_.get()[i];
      }
    });
    for (auto& softmax : softmax_) softmax.reset();
  }

  /// Calls visit(Chunk) for every owner and run of keys that one of its lines sees. Where one chunk
  /// holds all scores of a pass, a second stream finds them as the first one left them.
  template <typename Visit>
  void stream(Visit&& visit) {
    int64_t begin = call_.keys, end = 0;
    for (int64_t l = 0; l < count_; ++l) {
      begin = std::min(begin, lines_[l].begin);
      end = std::max(end, lines_[l].end);
    }
    last_key_ = end;
    const bool is_scored = has_scores_;
    has_scores_ = end - begin <= plan_.chunk;
    for (int64_t chunk = begin; chunk < end; chunk += plan_.chunk) {
      const int64_t chunk_end = std::min(chunk + plan_.chunk, end);
      for (int64_t block = chunk; block < chunk_end && !is_scored; block += plan_.key_block)
        score_block(chunk, block, std::min(block + plan_.key_block, chunk_end), end);
      for (int64_t owner = 0; owner * plan_.lines_per_owner < count_; ++owner) {
        Chunk<Sum> scored = chunk_of(owner, chunk, chunk_end);
        if (scored.count <= 0) continue;
        if (!is_scored) adjust(scored);
        visit(scored);
      }
    }
  }

  void absorb(const Chunk<Sum>& chunk) {
    kernels_.absorb(softmax_[static_cast<size_t>(chunk.owner)], chunk.scores, whole_steps(chunk),
                    /*is_one_row=*/!plan_.by_panel,
                    chunk.begin + chunk.count == last_key_ ? next_keys_ : nullptr);
  }

  /// Turns scores into exp(score - most[l]) for line l of the chunk; most: the largest of each.
  void weigh(const Chunk<Sum>& chunk, const double* most) {
    Sum about[kMostLanes];
    for (int64_t c = 0; c < plan_.lanes; ++c) {
      const double own = most[plan_.by_panel ? std::min(c, chunk.lines - 1) : 0];
      about[c] = static_cast<Sum>(own);
    }
    kernels_.weigh(chunk.scores, whole_steps(chunk), about);
  }

  /// Sums of a line over the chunks that were absorbed.
  RowSums sums(int64_t line) const {
    const OnlineSoftmax<Sum>& softmax = softmax_[static_cast<size_t>(line / plan_.lines_per_owner)];
    const int64_t column = plan_.by_panel ? line % plan_.lanes : 0;
    const double sink = call_.sinks == nullptr ? kMinusInfinity : call_.sinks[lines_[line].head];
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    if (softmax.broken[column]) return {kNaN, kNaN, kNaN};
    const double max = static_cast<double>(softmax.max[column]);
    if (max == kMinusInfinity) return {max, max, kNaN};
    if (std::isnan(sink) || sink == -kMinusInfinity) return {kNaN, kNaN, kNaN};
    double top = max, total = softmax.total[column], weighted = softmax.weighted[column];
    if (sink > max) {
      const double shift = max - sink, factor = std::exp(shift);
      weighted = factor == 0 ? 0 : factor * (weighted + total * shift);
      total = factor * total + 1;
      top = sink;
    } else if (sink > kMinusInfinity) {
      const double own = std::exp(sink - max);
      if (own > 0) weighted += own * (sink - max);
      total += own;
    }
    return {max, top + std::log(total), std::max(0.0, std::log(total) - weighted / total)};
  }

 private:
  int64_t offset_of(int64_t head) const {
    return head / call_.key_heads * call_.k.batch + head % call_.key_heads * call_.k.head;
  }

  /// Vectors of a chunk's scores; the last one of a single row is filled up with what counts for
  /// nothing.
  int64_t whole_steps(const Chunk<Sum>& chunk) const {
    if (plan_.by_panel) return chunk.count;
    const int64_t steps = (chunk.count + plan_.lanes - 1) / plan_.lanes;
    std::fill(chunk.scores + chunk.count, chunk.scores + steps * plan_.lanes,
              static_cast<Sum>(kMinusInfinity));
    return steps;
  }

  Chunk<Sum> chunk_of(int64_t owner, int64_t begin, int64_t end) const {
    const int64_t first = owner * plan_.lines_per_owner,
                  lines = std::min(plan_.lines_per_owner, count_ - first);
    int64_t seen_begin = end, seen_end = begin;
    for (int64_t l = first; l < first + lines; ++l) {
      if (lines_[l].begin >= lines_[l].end) continue;
      seen_begin = std::min(seen_begin, lines_[l].begin);
      seen_end = std::max(seen_end, lines_[l].end);
    }
    const int64_t from = std::max(begin, seen_begin);
    return {owner,
            from,
            std::min(end, seen_end) - from,
            first,
            lines,
            plan_.by_panel ? plan_.lanes : 1,
            scores_.get() + owner * score_size_};
  }

  /// Scores keys [begin, end) for every owner that sees some of them, at their places in the chunk;
  /// more follow up to last_key.
  void score_block(int64_t chunk, int64_t begin, int64_t end, int64_t last_key) {
    const Sum* keys = keys_.get();
    int64_t token_stride = plan_.padded_width;
    if (plan_.in_place) {
      token_stride = call_.k.token;
      keys = static_cast<const Sum*>(call_.k.data) + key_offset_ + begin * token_stride;
    } else {
      visit_elements(
          call_.k.data, call_.element, key_offset_ + begin * call_.k.token, [&](const auto* data) {
            kernels_.widen_rows(data, call_.element, call_.k.token, call_.k.width, end - begin,
                                last_key - end, call_.width, plan_.padded_width, keys_.get());
          });
    }
    const Sum scale = static_cast<Sum>(call_.scale);
    for (int64_t owner = 0; owner * plan_.lines_per_owner < count_; ++owner) {
      const Chunk<Sum> seen = chunk_of(owner, begin, end);
      if (seen.count <= 0) continue;
      const int64_t chunk_begin = chunk_of(owner, chunk, end).begin;
      const Sum* from = keys + (seen.begin - begin) * token_stride;
      const Sum* queries = queries_.get() + owner * query_size_;
      Sum* scores = seen.scores + (seen.begin - chunk_begin) * seen.key_step;
      if (plan_.by_panel) {
        kernels_.score_panel(from, token_stride, seen.count, queries, call_.width, scale, scores);
      } else {
        const int64_t after =
            plan_.in_place ? lines_[owner].end - (seen.begin + seen.count) : int64_t{0};
        kernels_.score_line(from, token_stride, seen.count, after, queries, plan_.padded_width,
                            scale, scores);
      }
    }
  }

  /// From scaled products to pre-softmax scores: cap, bias, and -inf where a line does not see.
  void adjust(const Chunk<Sum>& chunk) {
    if (call_.softcap > 0) {
      kernels_.cap_scores(chunk.scores, chunk.count * chunk.key_step,
                          static_cast<Sum>(call_.softcap));
    }
    if (call_.bias.data != nullptr) {
      for (int64_t l = 0; l < chunk.lines; ++l) add_bias(chunk, l);
    }
    if (plan_.by_panel) hide_outside(chunk);
    if (call_.documents != nullptr) {
      for (int64_t l = 0; l < chunk.lines; ++l) hide_documents(chunk, l);
    }
  }

  void add_bias(const Chunk<Sum>& chunk, int64_t l) {
    const Line& line = lines_[chunk.first_line + l];
    const int64_t offset = batch_ * call_.bias.batch + line.head * call_.bias.head +
                           line.query * call_.bias.token + chunk.begin * call_.bias.width;
    Sum* scores = chunk.scores + l;
    if (call_.bias_is_bool) {
      const bool* attends = static_cast<const bool*>(call_.bias.data) + offset;
      for (int64_t j = 0; j < chunk.count; ++j) {
        if (!attends[j * call_.bias.width])
          scores[j * chunk.key_step] = static_cast<Sum>(kMinusInfinity);
      }
      return;
    }
    visit_elements(call_.bias.data, call_.bias_element, offset, [&](const auto* data) {
      kernels_.widen_rows(data, call_.bias_element, 0, call_.bias.width, 1, 0, chunk.count,
                          chunk.count, row_.get());
    });
    for (int64_t j = 0; j < chunk.count; ++j) scores[j * chunk.key_step] += row_.get()[j];
  }

  void hide_outside(const Chunk<Sum>& chunk) {
    Sum first[kMostLanes] = {}, last[kMostLanes] = {};
    bool all_seen = chunk.lines == plan_.lanes;
    for (int64_t l = 0; l < chunk.lines; ++l) {
      const Line& line = lines_[chunk.first_line + l];
      const int64_t from = std::clamp<int64_t>(line.begin - chunk.begin, 0, chunk.count),
                    to = std::clamp<int64_t>(line.end - chunk.begin, 0, chunk.count);
      first[l] = static_cast<Sum>(from);
      last[l] = static_cast<Sum>(to);
      all_seen = all_seen && from == 0 && to == chunk.count;
    }
    if (!all_seen) kernels_.hide_outside(chunk.scores, chunk.count, first, last);
  }

  void hide_documents(const Chunk<Sum>& chunk, int64_t l) {
    const int64_t* documents = call_.documents + batch_ * call_.keys;
    const int64_t own = documents[lines_[chunk.first_line + l].query];
    for (int64_t j = 0; j < chunk.count; ++j) {
      if (documents[chunk.begin + j] != own)
        chunk.scores[j * chunk.key_step + l] = static_cast<Sum>(kMinusInfinity);
    }
  }

  const RowsCall& call_;
  const AttentionKernels<Sum>& kernels_;
  Plan plan_;
  int64_t query_size_, score_size_;
  hwy::AlignedFreeUniquePtr<Sum[]> queries_, scores_, row_, keys_;
  std::vector<OnlineSoftmax<Sum>> softmax_;
  int64_t batch_ = 0, key_offset_ = 0, last_key_ = 0;
  const Sum* next_keys_ = nullptr;
  bool has_scores_ = false;
  const Line* lines_ = nullptr;
  int64_t count_ = 0;
};

/// Calls visit(stream, b, lines) for every key head of a range that has any lines. Scratch is kept
/// from one to the next.
template <typename Sum, typename Visit>
void for_each_stream(const RowsCall& call, KeyHeads range, int64_t value_width, Visit&& visit) {
  std::vector<Line> lines;
  std::optional<RowStream<Sum>> stream;
  size_t planned = 0;
  for (int64_t i = range.first; i < range.last; ++i) {
    const int64_t b = i / call.key_heads, key_head = i % call.key_heads;
    find_lines(call, b, key_head, &lines);
    if (lines.empty()) continue;
    if (lines.size() != planned) {
      planned = lines.size();
      stream.emplace(call, static_cast<int64_t>(planned), value_width);
    }
    stream->begin_head(i, i + 1 < range.last);
    visit(*stream, b, lines);
  }
}

}  // namespace headscope::simd
