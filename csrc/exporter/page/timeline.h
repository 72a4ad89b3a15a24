#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "headscope/snapshot.h"

namespace headscope::exporter {

/// The rows of a table of figures that pages draw, in their order there.
template <typename Record, size_t count>
struct PageFigures {
  Figure<Record> rows[count];
};
template <size_t count, typename Record, size_t n>
constexpr PageFigures<Record, count> page_figures(const Figure<Record> (&figures)[n]) {
  PageFigures<Record, count> drawn{};
  for (const Figure<Record>& figure : figures) {
    if (figure.page_place > 0) drawn.rows[figure.page_place - 1] = figure;
  }
  return drawn;
}
template <typename Record, size_t n>
constexpr size_t page_figure_count(const Figure<Record> (&figures)[n]) {
  return static_cast<size_t>(std::ranges::count_if(
      figures, [](const Figure<Record>& figure) { return figure.page_place > 0; }));
}
inline constexpr size_t kHeadFigureCount = page_figure_count(kHeadFigures);
inline constexpr size_t kPatternFigureCount = page_figure_count(kPatternFigures);
inline constexpr auto kHeadTable = page_figures<kHeadFigureCount>(kHeadFigures);
inline constexpr auto kPatternTable = page_figures<kPatternFigureCount>(kPatternFigures);
/// The figures of a head that pages draw, in the order in which a row keeps them.
inline constexpr auto& kHeadPageFigures = kHeadTable.rows;
/// The figures of a head on one pattern, likewise.
inline constexpr auto& kPatternPageFigures = kPatternTable.rows;

/// One measured step as pages see it: without eigenvalues, figures in single precision.
struct TimelineRow {
  uint64_t number = 0;  ///< counts up over the life of the timeline: what a cursor points at
  int64_t step = 0;
  int64_t segment = 0;
  Source source = Source::kTrain;
  int64_t context = 0;
  int64_t probe_interval = 0;
  double tokens = kNaN;
  double wall_time = kNaN;
  double loss = kNaN;
  double repeat_gap = kNaN;
  double sink_any = kNaN;
  double sink_class = kNaN;
  double monitor_seconds = 0;  ///< of the training thread so far
  std::vector<std::string> patterns;
  std::vector<CircuitReading> circuits;
  std::vector<HeadId> heads;   ///< sorted
  std::vector<float> figures;  ///< [heads, kHeadFigureCount + patterns * kPatternFigureCount]
  std::vector<std::string> class_names;
  std::vector<uint8_t> classes;  ///< of each head, index into class_names
  std::vector<uint8_t> flags;    ///< of each head: 1 finite, 2 specialising

  size_t figures_per_head() const {
    return kHeadFigureCount + patterns.size() * kPatternFigureCount;
  }
  size_t bytes() const;
};

TimelineRow timeline_row(const Snapshot& snapshot);

/// What the pages of a run are drawn from: its history, bounded in memory by thinning out. append()
/// and the reads may be called from any threads; locks are held for moves and copies of pointers.
class Timeline {
 public:
  struct Limits {
    size_t rows = 4000;
    size_t bytes = 48 << 20;
    size_t events = 2000;
  };
  template <typename Item>
  struct Numbered {
    uint64_t number;
    Item item;
  };
  using Rows = std::vector<std::shared_ptr<const TimelineRow>>;

  /// Everything with a number above the one asked for. `reset`: steps that the caller may hold were
  /// measured again by a resumed run, so this is all there is, whatever was asked.
  struct Answer {
    uint64_t next = 0;
    bool reset = false;
    Rows rows;  ///< sorted by step, then number
    std::shared_ptr<const TimelineRow> newest_train, newest_probe;
    std::shared_ptr<const Snapshot> latest;  ///< of all, those of events alone too
    std::shared_ptr<const Snapshot>
        measured;  ///< of those with readings, of the probe if there is one
  };
  struct News {
    uint64_t next = 0;
    bool reset = false;
    std::vector<Numbered<Event>> events;
    std::vector<Numbered<AblationReport>> ablations;
  };

  Timeline() = default;
  explicit Timeline(Limits limits) : limits_(limits) {}

  /// The run's next snapshot. Steps that a resumed run measures again go.
  void append(const std::shared_ptr<const Snapshot>& snapshot);
  /// Snapshots of before the first one that was appended, from an earlier segment.
  void prepend(const std::vector<std::shared_ptr<const Snapshot>>& snapshots);

  Answer since(uint64_t number) const;
  /// The same without rows.
  Answer newest() const;
  News news_since(uint64_t number) const;
  /// Segment of the first appended snapshot; nothing before one was appended.
  std::optional<int64_t> first_segment() const;

 private:
  Answer newest_locked() const;
  void add(const std::shared_ptr<const Snapshot>& snapshot);
  void drop_from(int64_t step);
  void thin_out();

  const Limits limits_{};
  mutable std::mutex mutex_;
  uint64_t next_ = 0;
  uint64_t reset_ = 0;  ///< cursors below point at rows that may be gone
  int64_t segment_ = 0;
  std::optional<int64_t> first_segment_;
  size_t bytes_ = 0;
  Rows rows_;  ///< sorted by step, then number
  std::deque<Numbered<Event>> events_;
  std::deque<Numbered<AblationReport>> ablations_;
  std::shared_ptr<const TimelineRow> newest_train_, newest_probe_;
  std::shared_ptr<const Snapshot> latest_, measured_;
};

}  // namespace headscope::exporter
