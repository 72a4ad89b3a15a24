#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/promtool.h"
#include "tests/support/exporter/sample_snapshot.h"
#include "tests/support/system/temporary_directory.h"
#include "tests/support/system/text_file.h"

namespace headscope {
namespace {

using ::testing::HasSubstr;
using testing::read_text;
using testing::sample_snapshot;
using testing::shared;
using testing::TemporaryDirectory;
using ::testing::ThrowsMessage;

std::shared_ptr<Sink> textfile_at(const std::string& path) {
  TextfileOptions options;
  options.path = path;
  return make_textfile(options);
}

TEST(Textfile, HoldsWhatAScrapeWouldAnswer) {
  HEADSCOPE_NEED_PROMTOOL();
  const TemporaryDirectory directory;
  const std::string path = directory.file("run.prom");
  const auto sink = make_textfile({.path = path,
                                   .facts = {{"run", "a"}},
                                   .deadline_tokens = {{"induction", 1e9}},
                                   .health = [] { return testing::sample_health(); }});
  EXPECT_THAT(read_text(path), HasSubstr("headscope_run_info{run=\"a\"} 1\n"));
  sink->publish(shared(sample_snapshot(590, Source::kTrain)));
  sink->publish(shared(sample_snapshot(600)));
  const std::string text = read_text(path);
  EXPECT_THAT(text, HasSubstr("headscope_source_step{source=\"train\"} 590\n"));
  EXPECT_THAT(text, HasSubstr("headscope_step 600\n"));
  EXPECT_THAT(text, HasSubstr("headscope_taps_total 1000\n"));
  EXPECT_THAT(text, HasSubstr("headscope_circuit_deadline_tokens{pattern=\"induction\"}"));
  EXPECT_EQ(testing::promtool_complaints(text), "");
}

TEST(Textfile, IsNeverSeenInPart) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("run.prom");
  const auto sink = textfile_at(path);
  sink->publish(shared(sample_snapshot(0)));
  const std::string tail = read_text(path).substr(read_text(path).size() - 40);
  std::atomic<bool> done = false;
  int partial = 0;
  std::thread reader([&] {
    while (!done) partial += !read_text(path).ends_with(tail);
  });
  for (int step = 1; step < 50; ++step) sink->publish(shared(sample_snapshot(step)));
  done = true;
  reader.join();
  EXPECT_EQ(partial, 0);
  // Nothing beside it, which a collector might read too.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(Textfile, GoesWhenTheRunEnds) {
  const TemporaryDirectory directory;
  const auto sink = textfile_at(directory.file("run.prom"));
  sink->publish(shared(sample_snapshot(600)));
  sink->close();
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Textfile, AForkedChildLeavesItAlone) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("run.prom");
  const auto sink = textfile_at(path);
  sink->publish(shared(sample_snapshot(600)));
  const pid_t child = fork();
  if (child == 0) {
    sink->publish(shared(sample_snapshot(700)));
    sink->close();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(read_text(path), HasSubstr("headscope_step 600\n"));
}

TEST(Textfile, RefusesWhatNoCollectorWouldRead) {
  const TemporaryDirectory directory;
  EXPECT_THAT([&] { textfile_at(directory.file("run.txt")); },
              ThrowsMessage<std::runtime_error>(HasSubstr("does not end in .prom")));
  EXPECT_THAT([&] { textfile_at(directory.file("missing/run.prom")); },
              ThrowsMessage<std::runtime_error>(HasSubstr("missing/run.prom")));
}

}  // namespace
}  // namespace headscope
