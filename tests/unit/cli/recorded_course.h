#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headscope/built_in_sinks.h"
#include "headscope/circuits.h"
#include "plugin/cli/commands.h"
#include "plugin/cli/csv.h"
#include "tests/support/system/temporary_directory.h"

namespace headscope::test {

using Json = nlohmann::ordered_json;

/// Selectivity of induction of a head at each probe.
using Course = std::map<HeadId, std::vector<double>>;

inline constexpr double kTokensOfStep = 1000;

inline std::vector<Pattern> patterns() {
  auto standard = standard_patterns();
  standard.resize(2);  // induction, previous-token
  return standard;
}

/// Probes at steps 10, 20, .. of a model of 2 layers with 3 heads.
class RecordedCourse {
 public:
  explicit RecordedCourse(const std::string& run_dir, int64_t context = 256)
      : context_(context),
        tracker_(patterns(), context),
        sink_(open_history({.run_dir = run_dir, .facts = {{"run", "named"}}, .log = {}})) {}
  ~RecordedCourse() { sink_->close(); }

  using Change = std::function<void(Snapshot&)>;
  /// change: what is different about its snapshots.
  void take(const Course& course, const Change& change = {}) {
    for (size_t probe = 0; probe < course.begin()->second.size(); ++probe) {
      step_ += 10;
      Snapshot snapshot = blank();
      for (auto& head : snapshot.heads) {
        const auto found = course.find(head.id);
        if (found != course.end()) head.patterns[0].selectivity = found->second[probe];
      }
      snapshot.events = tracker_.update(
          {.step = snapshot.step, .tokens = snapshot.tokens, .heads = snapshot.heads, .nulls = {}});
      snapshot.circuits = tracker_.readings();
      if (change) change(snapshot);
      sink_->publish(std::make_shared<const Snapshot>(snapshot));
    }
  }
  void count_steps_anew() { step_ = 0; }
  /// The next probe is at this step.
  void go_to(int64_t step) { step_ = step - 10; }
  /// A verdict after the last probe, in a snapshot that has no heads.
  void verify(const std::vector<HeadId>& heads) {
    Snapshot snapshot;
    snapshot.step = step_;
    snapshot.tokens = kTokensOfStep * static_cast<double>(step_);
    snapshot.wall_time = ++clock_;
    snapshot.source = Source::kProbe;
    AblationReport report;
    report.pattern = "induction";
    report.metric = "planted_loss";
    report.gate = true;
    report.step = step_;
    report.heads = heads;
    report.verdict = CircuitState::kVerified;
    snapshot.ablations = {report};
    snapshot.events = tracker_.apply_verdict(report, snapshot.tokens, clock_);
    snapshot.circuits = tracker_.readings();
    sink_->publish(std::make_shared<const Snapshot>(snapshot));
  }

 private:
  Snapshot blank() {
    Snapshot snapshot;
    snapshot.step = step_;
    snapshot.tokens = kTokensOfStep * static_cast<double>(step_);
    snapshot.wall_time = ++clock_;
    snapshot.source = Source::kProbe;
    snapshot.context = context_;
    snapshot.controls = "measured_all";
    snapshot.integral_axis = "ln_tokens";
    for (const auto& pattern : patterns()) snapshot.patterns.push_back(pattern.name);
    for (int32_t h = 0; h < 6; ++h) {
      auto& head = snapshot.heads.emplace_back();
      head.id = {h / 3, h % 3};
      head.samples = 128;
      head.pr_integral = h * h;
      head.patterns.assign(2, {.selectivity = 1});
    }
    return snapshot;
  }

  int64_t context_;
  CircuitTracker tracker_;
  std::shared_ptr<Sink> sink_;
  int64_t step_ = 0;
  double clock_ = 1e9;
};

/// Runs in a folder of their own, and what `headscope compare` says of them.
class ComparedRuns : public ::testing::Test {
 protected:
  std::string record(const std::string& name, const Course& course,
                     const RecordedCourse::Change& change = {}, int64_t context = 256) {
    const std::string run_dir = folder_.file(name);
    RecordedCourse(run_dir, context).take(course, change);
    return run_dir;
  }
  static Json answer(cli::CompareArguments arguments) {
    arguments.json = true;
    return Json::parse(cli::compare(arguments));
  }
  static std::string refusal(const cli::CompareArguments& arguments) {
    try {
      cli::compare(arguments);
    } catch (const cli::InputError& error) {
      return error.what();
    }
    return "";
  }

  headscope::testing::TemporaryDirectory folder_;
};

inline const Course kTwoHeads = {{{0, 1}, {1, 3, 3, 60, 60}}, {{1, 0}, {1, 1, 60, 60, 60}}};
inline const Course kOneOfThem = {{{1, 0}, {1, 1, 60, 60, 60}}};

/// A run whose induction forms at `probe`, out of `probes`; 0: never.
inline Course forms_at(size_t probe, size_t probes) {
  std::vector<double> course(probes, 1);
  for (size_t i = probe; probe > 0 && i <= probes; ++i) course[i - 1] = 60;
  return {{{0, 0}, course}};
}

}  // namespace headscope::test
