#include "csrc/exporter/page/timeline.h"

#include <algorithm>
#include <limits>

#include "csrc/exporter/common/thinning.h"

namespace headscope::exporter {
namespace {

constexpr size_t kMaxClassNames = 255;
constexpr size_t kMaxAblations = 256;

/// Index of `name` in `names`, added when new.
uint8_t index_of(const std::string& name, std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<uint8_t>(found - names.begin());
  if (names.size() == kMaxClassNames) return 0;
  names.push_back(name);
  return static_cast<uint8_t>(names.size() - 1);
}

void append_figures(const HeadReading& head, size_t patterns, std::vector<float>& figures) {
  for (const auto& figure : kHeadPageFigures)
    figures.push_back(static_cast<float>(head.*figure.member));
  for (size_t p = 0; p < patterns; ++p) {
    const PatternReading reading = p < head.patterns.size() ? head.patterns[p] : PatternReading{};
    for (const auto& figure : kPatternPageFigures)
      figures.push_back(static_cast<float>(reading.*figure.member));
  }
}

bool earlier(const std::shared_ptr<const TimelineRow>& a,
             const std::shared_ptr<const TimelineRow>& b) {
  return a->step != b->step ? a->step < b->step : a->number < b->number;
}

}  // namespace

size_t TimelineRow::bytes() const {
  return sizeof(TimelineRow) + figures.size() * sizeof(float) +
         heads.size() * (sizeof(HeadId) + 2) + circuits.size() * (sizeof(CircuitReading) + 64) +
         (patterns.size() + class_names.size()) * 2 * sizeof(std::string);
}

TimelineRow timeline_row(const Snapshot& snapshot) {
  TimelineRow row;
  row.step = snapshot.step;
  row.segment = snapshot.segment;
  row.source = snapshot.source;
  row.context = snapshot.context;
  row.probe_interval = snapshot.probe_interval;
  row.tokens = snapshot.tokens;
  row.wall_time = snapshot.wall_time;
  row.loss = snapshot.loss;
  row.repeat_gap = snapshot.repeat_gap;
  row.sink_any = snapshot.sink_any;
  row.sink_class = snapshot.sink_class;
  const Health& health = snapshot.health;
  row.monitor_seconds =
      health.tap_seconds + health.probe_seconds + health.ablation_seconds + health.wait_seconds;
  row.patterns = snapshot.patterns;
  row.circuits = snapshot.circuits;
  row.figures.reserve(snapshot.heads.size() * row.figures_per_head());
  for (const HeadReading& head : snapshot.heads) {
    row.heads.push_back(head.id);
    append_figures(head, row.patterns.size(), row.figures);
    row.classes.push_back(index_of(head.best_pattern, row.class_names));
    row.flags.push_back(static_cast<uint8_t>((head.finite ? 1 : 0) | (head.specialising ? 2 : 0)));
  }
  return row;
}

void Timeline::append(const std::shared_ptr<const Snapshot>& snapshot) {
  const std::lock_guard lock(mutex_);
  const Snapshot& next = *snapshot;
  if (!first_segment_) {
    first_segment_ = segment_ = next.segment;
  } else if (next.segment != segment_) {
    drop_from(next.segment_start >= 0 ? next.segment_start
              : next.segment == 0     ? std::numeric_limits<int64_t>::min()
                                      : next.step);
    segment_ = next.segment;
  } else if (next.segment == 0 && latest_ && next.step < latest_->step) {
    drop_from(std::numeric_limits<int64_t>::min());  // another run in the same directory
  }
  add(snapshot);
  latest_ = snapshot;
  const bool better =
      next.source == Source::kProbe || !measured_ || measured_->source == next.source;
  if (!next.heads.empty() && better) measured_ = snapshot;
  thin_out();
}

void Timeline::prepend(const std::vector<std::shared_ptr<const Snapshot>>& snapshots) {
  const std::lock_guard lock(mutex_);
  const int64_t before = rows_.empty() ? std::numeric_limits<int64_t>::max() : rows_.front()->step;
  const auto train = newest_train_, probe = newest_probe_;
  for (const auto& snapshot : snapshots) {
    if (snapshot->step < before) add(snapshot);
  }
  if (train) newest_train_ = train;
  if (probe) newest_probe_ = probe;
  thin_out();
}

void Timeline::add(const std::shared_ptr<const Snapshot>& snapshot) {
  auto row = std::make_shared<TimelineRow>(timeline_row(*snapshot));
  row->number = ++next_;
  for (const Event& event : snapshot->events) events_.push_back({next_, event});
  for (const AblationReport& report : snapshot->ablations) ablations_.push_back({next_, report});
  while (events_.size() > limits_.events) {
    // Circuits' events are few and say most: those of heads go first.
    const auto head_level = std::find_if(events_.begin(), events_.end(),
                                         [](const auto& e) { return e.item.head_level; });
    events_.erase(head_level == events_.end() ? events_.begin() : head_level);
  }
  while (ablations_.size() > kMaxAblations) ablations_.pop_front();
  if (row->heads.empty()) return;  // events alone: nothing to draw
  (row->source == Source::kProbe ? newest_probe_ : newest_train_) = row;
  bytes_ += row->bytes();
  rows_.insert(std::upper_bound(rows_.begin(), rows_.end(), row, earlier), row);
}

void Timeline::drop_from(int64_t step) {
  reset_ = ++next_;  // even the newest cursor has seen what goes
  std::erase_if(rows_, [&](const auto& row) { return row->step >= step; });
  std::erase_if(events_, [&](const auto& event) { return event.item.step >= step; });
  std::erase_if(ablations_, [&](const auto& report) { return report.item.step >= step; });
  bytes_ = 0;
  newest_train_ = newest_probe_ = nullptr;
  for (const auto& row : rows_) {
    bytes_ += row->bytes();
    (row->source == Source::kProbe ? newest_probe_ : newest_train_) = row;
  }
}

void Timeline::thin_out() {
  if (rows_.size() <= limits_.rows && bytes_ <= limits_.bytes) return;
  std::vector<size_t> of_source[2], kept;
  for (size_t i = 0; i < rows_.size(); ++i)
    of_source[rows_[i]->source == Source::kProbe].push_back(i);
  for (const auto& candidates : of_source) {
    for (const size_t i :
         thinned_indices(candidates.size(), std::max<size_t>(2, candidates.size() / 2)))
      kept.push_back(candidates[i]);
  }
  std::sort(kept.begin(), kept.end());
  Rows rows;
  bytes_ = 0;
  for (const size_t i : kept) {
    bytes_ += rows_[i]->bytes();
    rows.push_back(rows_[i]);
  }
  rows_.swap(rows);
}

Timeline::Answer Timeline::since(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  Answer answer = newest_locked();
  answer.reset = number > 0 && (number < reset_ || number > next_);
  if (answer.reset) number = 0;
  for (const auto& row : rows_) {
    if (row->number > number) answer.rows.push_back(row);
  }
  return answer;
}

Timeline::Answer Timeline::newest() const {
  const std::lock_guard lock(mutex_);
  return newest_locked();
}

Timeline::Answer Timeline::newest_locked() const {
  Answer answer;
  answer.next = next_;
  answer.newest_train = newest_train_;
  answer.newest_probe = newest_probe_;
  answer.latest = latest_;
  answer.measured = measured_;
  return answer;
}

Timeline::News Timeline::news_since(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  News news;
  news.next = next_;
  news.reset = number > 0 && (number < reset_ || number > next_);
  if (news.reset) number = 0;
  for (const auto& event : events_) {
    if (event.number > number) news.events.push_back(event);
  }
  for (const auto& report : ablations_) {
    if (report.number > number) news.ablations.push_back(report);
  }
  return news;
}

std::optional<int64_t> Timeline::first_segment() const {
  const std::lock_guard lock(mutex_);
  return first_segment_;
}

}  // namespace headscope::exporter
