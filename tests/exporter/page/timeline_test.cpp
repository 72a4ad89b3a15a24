#include "csrc/exporter/page/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/exporter/sample_snapshot.h"

namespace headscope::exporter {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::sample_snapshot;
using testing::shared;

std::shared_ptr<const Snapshot> at(int64_t step, int64_t segment = 0, int64_t segment_start = -1,
                                   Source source = Source::kProbe) {
  Snapshot snapshot = sample_snapshot(step, source);
  snapshot.segment = segment;
  snapshot.segment_start = segment_start;
  return shared(snapshot);
}

std::vector<int64_t> steps(const Timeline::Answer& answer) {
  std::vector<int64_t> list;
  for (const auto& row : answer.rows) list.push_back(row->step);
  return list;
}

TEST(TimelineRow, HoldsTheFiguresOfTheSnapshot) {
  const Snapshot snapshot = sample_snapshot(600);
  const TimelineRow row = timeline_row(snapshot);
  ASSERT_EQ(row.heads.size(), snapshot.heads.size());
  const size_t h = 12;
  const float* figures = row.figures.data() + h * row.figures_per_head();
  const HeadReading& head = snapshot.heads[h];
  EXPECT_EQ(figures[0], static_cast<float>(head.participation_ratio));
  EXPECT_EQ(figures[7], static_cast<float>(head.prefix_matching));
  EXPECT_EQ(figures[kHeadFigureCount + 4], static_cast<float>(head.patterns[1].selectivity));
  EXPECT_EQ(figures[kHeadFigureCount + 7], static_cast<float>(head.patterns[1].margin_z));
  EXPECT_EQ(row.class_names[row.classes[h]], head.best_pattern);
  EXPECT_EQ(row.flags[h], 1 | 2);  // head 1.4 of the sample specialises
}

TEST(TimelineRow, APatternThatAHeadLacksIsNotMeasured) {
  Snapshot snapshot = sample_snapshot();
  snapshot.heads[0].patterns.resize(1);
  const TimelineRow row = timeline_row(snapshot);
  EXPECT_EQ(row.figures.size(), row.heads.size() * row.figures_per_head());
  EXPECT_TRUE(std::isnan(row.figures[kHeadFigureCount + kPatternFigureCount]));
}

TEST(Timeline, ACursorGivesWhatIsNew) {
  Timeline timeline;
  timeline.append(at(10));
  const uint64_t cursor = timeline.since(0).next;
  EXPECT_THAT(timeline.since(cursor).rows, IsEmpty());
  timeline.append(at(20));
  EXPECT_THAT(steps(timeline.since(cursor)), ElementsAre(20));
  EXPECT_THAT(steps(timeline.since(0)), ElementsAre(10, 20));
  EXPECT_FALSE(timeline.since(cursor).reset);
  EXPECT_EQ(timeline.news_since(cursor).events.size(), 1u);
  EXPECT_EQ(timeline.news_since(0).ablations.size(), 2u);
}

TEST(Timeline, AResumedRunTakesBackWhatItMeasuresAgain) {
  Timeline timeline;
  for (const int64_t step : {10, 20, 30}) timeline.append(at(step));
  const uint64_t cursor = timeline.since(0).next;
  timeline.append(at(25, 1, 20));
  const Timeline::Answer answer = timeline.since(cursor);
  EXPECT_TRUE(answer.reset);
  EXPECT_THAT(steps(answer), ElementsAre(10, 25));
  EXPECT_EQ(timeline.news_since(0).events.size(), 2u);
  EXPECT_EQ(timeline.news_since(0).ablations.size(), 2u);
  EXPECT_FALSE(timeline.since(answer.next).reset);
}

TEST(Timeline, AnotherRunInTheSameDirectoryBeginsAnew) {
  Timeline timeline;
  for (const int64_t step : {10, 20}) timeline.append(at(step));
  timeline.append(at(1));
  EXPECT_THAT(steps(timeline.since(0)), ElementsAre(1));
  timeline.append(at(7, 2, 5));
  timeline.append(at(3, 0));
  EXPECT_THAT(steps(timeline.since(0)), ElementsAre(3));
}

TEST(Timeline, ACursorOfAnotherServerStartsAgain) {
  Timeline timeline;
  timeline.append(at(10));
  const Timeline::Answer answer = timeline.since(999);
  EXPECT_TRUE(answer.reset);
  EXPECT_THAT(steps(answer), ElementsAre(10));
}

TEST(Timeline, EarlierSegmentsComeBeforeAndChangeNothingNewer) {
  Timeline timeline;
  timeline.append(at(30, 1, 25));
  timeline.prepend({at(10), at(20), at(30)});
  const Timeline::Answer answer = timeline.since(0);
  EXPECT_THAT(steps(answer), ElementsAre(10, 20, 30));
  EXPECT_EQ(answer.newest_probe->segment, 1);
  EXPECT_EQ(timeline.first_segment(), 1);
}

TEST(Timeline, EventsAloneAreNoRow) {
  Timeline timeline;
  Snapshot snapshot = sample_snapshot(40);
  snapshot.heads.clear();
  timeline.append(shared(snapshot));
  EXPECT_THAT(timeline.since(0).rows, IsEmpty());
  EXPECT_EQ(timeline.news_since(0).events.size(), 1u);
}

TEST(Timeline, MemoryIsBoundedByThinningOut) {
  const size_t row_bytes = timeline_row(sample_snapshot()).bytes();
  Timeline timeline({.rows = 1000, .bytes = 50 * row_bytes, .events = 20});
  for (int64_t step = 0; step < 2000; ++step) {
    timeline.append(at(step, 0, -1, step % 2 == 0 ? Source::kProbe : Source::kTrain));
  }
  const Timeline::Answer answer = timeline.since(0);
  size_t bytes = 0;  // not rows: those of training have no circuits and are smaller
  for (const auto& row : answer.rows) bytes += row->bytes();
  EXPECT_LE(bytes, 50 * row_bytes);
  EXPECT_GE(answer.rows.size(), 20u);
  EXPECT_EQ(answer.rows.front()->step, 0);
  EXPECT_EQ(answer.rows.back()->step, 1999);
  EXPECT_EQ(timeline.news_since(0).events.size(), 20u);
}

TEST(Timeline, RowsAreBoundedHoweverSmall) {
  Timeline timeline({.rows = 50, .bytes = 1 << 30, .events = 20});
  for (int64_t step = 0; step < 200; ++step) timeline.append(at(step));
  EXPECT_LE(timeline.since(0).rows.size(), 50u);
}

TEST(Timeline, EventsOfHeadsGoFirst) {
  Timeline timeline({.rows = 1000, .bytes = 1 << 20, .events = 2});
  Snapshot heads = sample_snapshot(20);
  heads.events[0].head_level = true;
  timeline.append(at(10));
  timeline.append(shared(heads));
  timeline.append(at(30));
  const Timeline::News news = timeline.news_since(0);
  ASSERT_EQ(news.events.size(), 2u);
  EXPECT_EQ(news.events[0].item.step, 10);
  EXPECT_EQ(news.events[1].item.step, 30);
}

}  // namespace
}  // namespace headscope::exporter
