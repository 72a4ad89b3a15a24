#include "csrc/exporter/terminal/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "tests/support/exporter/sample_snapshot.h"

namespace headscope::exporter {
namespace {

using headscope::testing::sample_snapshot;
using headscope::testing::shared;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Where the line goes, and a clock that stands still until it is moved.
class Screen {
 public:
  static Screen pipe() {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    return Screen(ends[0], ends[1]);
  }
  static Screen terminal(int columns) {
    setenv("TERM", "xterm", 1);
    const winsize size{24, static_cast<unsigned short>(columns), 0, 0};
    int outer = 0;
    int inner = 0;
    if (openpty(&outer, &inner, nullptr, nullptr, &size) != 0) throw std::runtime_error("no pty");
    return Screen(outer, inner);
  }
  Screen(const Screen&) = delete;
  ~Screen() {
    close(reader_);
    if (writer_ >= 0) close(writer_);
  }

  std::shared_ptr<Sink> line(int64_t total_steps = 0) {
    ProgressOptions options;
    options.total_steps = total_steps;
    options.file_descriptor = writer_;
    return make_progress_line(options, [this] { return seconds; });
  }
  /// What was written since the last call.
  std::string text() const {
    fcntl(reader_, F_SETFL, O_NONBLOCK);
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = read(reader_, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }
  void close_reader() { close(reader_); }
  int writer() const { return writer_; }

  double seconds = 0;

 private:
  Screen(int reader, int writer) : reader_(reader), writer_(writer) {}
  int reader_;
  int writer_;
};

Snapshot quiet(int64_t step, Source source = Source::kTrain) {
  Snapshot snapshot = sample_snapshot(step, source);
  snapshot.events.clear();
  return snapshot;
}

TEST(Progress, PlainLineNamesStepLossHeadsAndCircuits) {
  Screen screen = Screen::pipe();
  screen.line(1500)->publish(shared(quiet(600, Source::kProbe)));
  EXPECT_EQ(screen.text(),
            "step 600/1500  loss 3.25  heads 1.7 local 43.8x, 1.6 local 42x, 1.5 local 40.2x  "
            "circuits induction formed\n");
}

TEST(Progress, TokensPerSecondComeFromTheClock) {
  Screen screen = Screen::pipe();
  const auto line = screen.line();
  line->publish(shared(quiet(0)));
  screen.seconds = 10;
  line->publish(shared(quiet(100)));
  EXPECT_THAT(screen.text(), HasSubstr("  41k tokens/s"));
}

TEST(Progress, AWallClockThatJumpsChangesNothing) {
  const auto lines = [](double jump) {
    Screen screen = Screen::pipe();
    const auto line = screen.line();
    for (int i = 0; i < 20; ++i) {
      Snapshot snapshot = quiet(10 * i);
      snapshot.wall_time = 1.75e9 + i + (i < 10 ? 0 : jump);
      screen.seconds = i;
      line->publish(shared(snapshot));
    }
    line->close();
    return screen.text();
  };
  EXPECT_THAT(lines(0), HasSubstr("  41k tokens/s"));
  EXPECT_EQ(lines(-3600), lines(0));
  EXPECT_EQ(lines(3600), lines(0));
}

TEST(Progress, APauseDoesNotLookLikeACollapse) {
  Screen screen = Screen::pipe();
  const auto line = screen.line();
  for (const auto& [step, seconds] :
       std::vector<std::pair<int, double>>{{0, 0}, {100, 10}, {101, 12}}) {
    screen.seconds = seconds;
    line->publish(shared(quiet(step)));
  }
  line->close();
  const std::string text = screen.text();
  EXPECT_THAT(text, Not(HasSubstr("2.05k tokens/s")));
  EXPECT_THAT(text, HasSubstr("  34.5k tokens/s"));
}

TEST(Progress, EventsWithoutReadingsKeepTheHeadsShown) {
  Screen screen = Screen::pipe();
  const auto line = screen.line();
  Snapshot events_only = quiet(601, Source::kProbe);
  events_only.heads.clear();
  line->publish(shared(events_only));
  line->publish(shared(quiet(602, Source::kProbe)));
  events_only.step = 603;
  line->publish(shared(events_only));
  line->close();
  EXPECT_THAT(screen.text(), HasSubstr("step 603  loss 3.25  heads 1.7 local"));
}

TEST(Progress, ALostLossIsNan) {
  Screen screen = Screen::pipe();
  Snapshot lost = quiet(600);
  const auto line = screen.line();
  line->publish(shared(lost));
  lost.loss = -kNaN;
  line->publish(shared(lost));
  line->close();
  EXPECT_THAT(screen.text(), HasSubstr("loss nan"));
}

TEST(Progress, PlainLinesAreRare) {
  Screen screen = Screen::pipe();
  const auto line = screen.line();
  for (int step = 0; step < 100; ++step) {
    screen.seconds = 0.1 * step;
    line->publish(shared(quiet(step)));
  }
  const std::string text = screen.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(Progress, TheLastStepIsWrittenAtTheEnd) {
  Screen screen = Screen::pipe();
  const auto line = screen.line();
  line->publish(shared(quiet(1)));
  line->publish(shared(quiet(2)));
  line->close();
  EXPECT_THAT(screen.text(), HasSubstr("\nstep 2  "));
}

TEST(Progress, ClosingWithoutAnySnapshotWritesNothing) {
  Screen screen = Screen::terminal(80);
  screen.line()->close();
  EXPECT_EQ(screen.text(), "");
}

TEST(Progress, EveryPatternLevelEventGetsItsOwnLineAtOnce) {
  Screen screen = Screen::pipe();
  const auto line = screen.line();
  line->publish(shared(quiet(590)));
  screen.text();
  line->publish(shared(sample_snapshot(600)));
  EXPECT_EQ(screen.text(),
            "step 600  induction formed: heads 1.4, 1.6 (selectivity 61.5, threshold 50)\n");
}

TEST(Progress, HeadLevelEventsGetNoLine) {
  Screen screen = Screen::pipe();
  const auto line = screen.line();
  line->publish(shared(quiet(590)));
  screen.text();
  Snapshot snapshot = sample_snapshot(600);
  snapshot.events[0].head_level = true;
  line->publish(shared(snapshot));
  EXPECT_EQ(screen.text(), "");
}

TEST(Progress, TerminalLineIsRewrittenInPlace) {
  Screen screen = Screen::terminal(200);
  const auto line = screen.line();
  line->publish(shared(quiet(1)));
  screen.seconds = 1;
  line->publish(shared(quiet(2)));
  const std::string text = screen.text();
  EXPECT_THAT(text, StartsWith("\r\x1b[2Kstep 1  "));
  EXPECT_THAT(text, HasSubstr("\r\x1b[2Kstep 2  "));
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  line->close();
  EXPECT_THAT(screen.text(), EndsWith("\n"));
}

TEST(Progress, TerminalLineFitsTheWidth) {
  Screen screen = Screen::terminal(30);
  screen.line()->publish(shared(quiet(600, Source::kProbe)));
  EXPECT_EQ(screen.text(), "\r\x1b[2Kstep 600  loss 3.25  heads 1.");
}

TEST(Progress, TerminalShowsEventsAboveTheLine) {
  Screen screen = Screen::terminal(200);
  screen.line()->publish(shared(sample_snapshot(600)));
  EXPECT_THAT(screen.text(),
              StartsWith("\r\x1b[2Kstep 600  induction formed: heads 1.4, 1.6 (selectivity 61.5, "
                         "threshold 50)\r\n\r\x1b[2Kstep 600  loss"));
}

TEST(Progress, NamesCannotCommandTheTerminal) {
  Screen screen = Screen::pipe();
  Snapshot snapshot = sample_snapshot(600);
  snapshot.events[0].pattern = "x\x1b[2J\n";
  snapshot.patterns[5] = "\x1b]0;title\x07";
  screen.line()->publish(shared(snapshot));
  const std::string text = screen.text();
  EXPECT_THAT(text, HasSubstr("x?[2J? formed"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Progress, ALossThatBecameNaNIsShown) {
  Screen screen = Screen::pipe();
  const auto line = screen.line();
  line->publish(shared(quiet(1)));
  Snapshot lost = quiet(2);
  lost.loss = kNaN;
  line->publish(shared(lost));
  line->close();
  EXPECT_THAT(screen.text(), HasSubstr("step 2  loss nan"));
}

TEST(EventLine, BoundsHeadsAndUnknownFigures) {
  Event event = headscope::testing::sample_event(7);
  event.heads = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}};
  event.figures = {{"a", kNaN}, {"b_c", 2}, {"c", 3}, {"d", 4}, {"e", 5}, {"f", 6}};
  EXPECT_EQ(event_line(event),
            "step 7  induction formed: heads 0.0, 0.1, 0.2, 0.3 and 2 more (b c 2, c 3, d 4, e 5)");
}

TEST(EventLine, ShowsWhatEmergingRestsOn) {
  Event event = headscope::testing::sample_event(625);
  event.kind = "emerging";
  event.heads = {{1, 4}};
  event.figures = {{"alpha", 1e-3}, {"critical_z", 3.7}, {"margin_z", 4.1}, {"selectivity", 2.5}};
  EXPECT_EQ(
      event_line(event),
      "step 625  induction emerging: head 1.4 (margin z 4.1, critical z 3.7, selectivity 2.5)");
}

TEST(EventLine, ShowsWhatAVerdictRestsOn) {
  Event event = headscope::testing::sample_event(700);
  event.kind = "verified";
  event.figures = {
      {"effect", 2.75}, {"control_mean", 0.125}, {"controls", 19}, {"baseline_loss", 1}};
  EXPECT_EQ(event_line(event),
            "step 700  induction verified: heads 1.4, 1.6 (effect 2.75, control mean 0.125, "
            "controls 19)");
}

TEST(Progress, AClosedPipeNeitherThrowsNorSignals) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGPIPE, SIG_DFL);
    Screen screen = Screen::pipe();
    screen.close_reader();
    const auto line = screen.line();
    line->publish(shared(sample_snapshot(600)));
    line->close();
    sigset_t pending;
    sigpending(&pending);
    _exit(sigismember(&pending, SIGPIPE));
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Progress, AFullPipeDoesNotBlock) {
  Screen screen = Screen::pipe();
  const int flags = fcntl(screen.writer(), F_GETFL);
  fcntl(screen.writer(), F_SETFL, flags | O_NONBLOCK);
  const std::string filling(65536, 'x');
  while (write(screen.writer(), filling.data(), filling.size()) > 0) {
  }
  fcntl(screen.writer(), F_SETFL, flags);  // now a write would block for ever
  screen.line()->publish(shared(quiet(1)));
  SUCCEED();  // returning is the fact
}

TEST(Progress, ABadDescriptorIsHarmless) {
  ProgressOptions options;
  options.file_descriptor = -1;
  const auto line = headscope::make_progress_line(options);
  line->publish(shared(sample_snapshot()));
  line->close();
}

}  // namespace
}  // namespace headscope::exporter
