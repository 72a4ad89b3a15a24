#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

#include "tests/support/models/tiny_model.h"

namespace headscope {
namespace {

using testing::Attached;
using testing::tiny_training;
using testing::TinyModel;

/// Rules under which a tiny run has a rich life: emerging, formed, verified or not, lost.
Options lively() {
  Options options;
  options.rules.mass_floor = 0.05;
  options.rules.emerging_selectivity = 1.05;
  options.schedule.longest_probe_gap = 4;
  return options;
}

void set_lively_probe(Attached& attached, TinyModel& model) {
  ProbeOptions probe = testing::tiny_probe();
  for (Pattern& pattern : probe.patterns) pattern.formed_at_256 = 20;
  attached.monitor->set_probe(
      model, [&model](const at::Tensor& tokens) { return model.forward(tokens); }, probe);
}

struct Outcome {
  std::vector<std::string> events;
  std::vector<double> integrals;
  std::vector<double> effects;
  std::string circuits;
};

Outcome outcome_of(Monitor& monitor) {
  const RunReport report = monitor.report();
  Outcome outcome;
  for (const Event& event : report.events) {
    std::string line = std::to_string(event.step) + " " + event.kind + " " + event.pattern;
    for (const auto& [name, value] : event.figures) {
      line += " " + name + "=" + std::to_string(std::bit_cast<uint64_t>(value));
    }
    for (const HeadId& id : event.heads)
      line += " " + std::to_string(id.layer) + "." + std::to_string(id.head);
    outcome.events.push_back(line);
  }
  for (const HeadReading& head : report.last_probe->heads)
    outcome.integrals.push_back(head.pr_integral);
  for (const AblationReport& ablation : report.ablations)
    outcome.effects.push_back(ablation.effect);
  for (const CircuitReading& circuit : report.circuits) {
    outcome.circuits += circuit.pattern + ":" + to_string(circuit.state) + "@" +
                        std::to_string(circuit.formed_step) + " ";
  }
  return outcome;
}

TEST(Resume, ARunBrokenAnywhereEqualsTheUnbrokenOneBitForBit) {
  constexpr int64_t kSteps = 60;
  Outcome unbroken;
  {
    TinyModel model(2);
    Attached attached(model, lively(), false);
    set_lively_probe(attached, model);
    tiny_training(model, attached.monitor.get(), 0, kSteps);
    unbroken = outcome_of(*attached.monitor);
  }
  EXPECT_FALSE(unbroken.events.empty());
  EXPECT_FALSE(unbroken.effects.empty());
  for (const int64_t cut : {1, 17, 33, 34, 50}) {
    TinyModel model(2);
    StateDict state;
    {
      Attached attached(model, lively(), false);
      set_lively_probe(attached, model);
      tiny_training(model, attached.monitor.get(), 0, cut);
      state = attached.monitor->state_dict();
    }
    Attached attached(model, lively(), false);
    set_lively_probe(attached, model);
    attached.monitor->load_state_dict(state);
    tiny_training(model, attached.monitor.get(), cut, kSteps);
    const Outcome resumed = outcome_of(*attached.monitor);
    EXPECT_EQ(resumed.events, unbroken.events) << "cut at " << cut;
    EXPECT_EQ(resumed.integrals, unbroken.integrals) << "cut at " << cut;
    EXPECT_EQ(resumed.effects, unbroken.effects) << "cut at " << cut;
    EXPECT_EQ(resumed.circuits, unbroken.circuits) << "cut at " << cut;
  }
}

// The run dies after the save: what it did since is replayed, and nothing counts twice.
TEST(Resume, ReplayedStepsCountOnce) {
  TinyModel model(2);
  Attached unbroken(model, lively(), false);
  set_lively_probe(unbroken, model);
  tiny_training(model, unbroken.monitor.get(), 0, 40);
  const Outcome want = outcome_of(*unbroken.monitor);

  TinyModel first(2);
  Attached dying(first, lively(), false);
  set_lively_probe(dying, first);
  tiny_training(first, dying.monitor.get(), 0, 20);
  const StateDict state = dying.monitor->state_dict();
  std::vector<at::Tensor> weights;
  for (const at::Tensor& parameter : first.parameters()) {
    weights.push_back(parameter.detach().clone());
  }
  tiny_training(first, dying.monitor.get(), 20, 33);

  TinyModel second(2);
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < weights.size(); ++i) second.parameters()[i].copy_(weights[i]);
  }
  Attached resumed(second, lively(), false);
  set_lively_probe(resumed, second);
  resumed.monitor->load_state_dict(state);
  tiny_training(second, resumed.monitor.get(), 20, 40);
  const Outcome got = outcome_of(*resumed.monitor);
  EXPECT_EQ(got.events, want.events);
  EXPECT_EQ(got.integrals, want.integrals);
  EXPECT_EQ(got.circuits, want.circuits);
}

TEST(Resume, VerifyingRightAfterLoadingIsDatedByTheSavedStep) {
  TinyModel model(2);
  StateDict state;
  {
    Attached attached(model, lively(), false);
    set_lively_probe(attached, model);
    tiny_training(model, attached.monitor.get(), 0, 40);
    state = attached.monitor->state_dict();
  }
  Attached resumed(model, lively(), false);
  set_lively_probe(resumed, model);
  resumed.monitor->load_state_dict(state);
  const auto reports = resumed.monitor->verify();
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.front().step, 39);
  resumed.monitor->close();
  for (const auto& snapshot : resumed.sink->snapshots) {
    EXPECT_EQ(snapshot->step, 39);
    EXPECT_TRUE(snapshot->heads.empty()) << "no reading belongs to a verification";
  }
}

/// A sink that is slower than the run.
class SlowSink : public testing::RecordingSink {
 public:
  void publish(const std::shared_ptr<const Snapshot>& snapshot) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    RecordingSink::publish(snapshot);
    ++published;
  }
  std::atomic<size_t> published{0};
};

// A kill right after the save loses nothing that came before it: no resumed run would tell it
// again.
TEST(Resume, WhatTheStateIsPastTheSinksHave) {
  TinyModel model(2);
  const auto slow = std::make_shared<SlowSink>();
  Options options = lively();
  options.schedule.budget = 0;
  options.log = [](LogLevel, const std::string&) {};
  Monitor monitor(options, {slow});
  monitor.set_probe(
      model, [&model](const at::Tensor& tokens) { return model.forward(tokens); },
      testing::tiny_probe());
  model.monitor = &monitor;
  tiny_training(model, &monitor, 0, 30);
  static_cast<void>(monitor.state_dict());
  const size_t at_the_save = slow->published;
  EXPECT_GT(at_the_save, 5u);
  monitor.close();
  EXPECT_EQ(slow->snapshots.size(), at_the_save);
}

TEST(Resume, AVerdictBeforeTheSaveIsToldOnce) {
  TinyModel model(2);
  Attached first(model, lively(), false);
  set_lively_probe(first, model);
  tiny_training(model, first.monitor.get(), 0, 40);
  ASSERT_FALSE(first.monitor->verify().empty());
  const StateDict state = first.monitor->state_dict();
  first.monitor->close();
  Attached second(model, lively(), false);
  set_lively_probe(second, model);
  second.monitor->load_state_dict(state);
  tiny_training(model, second.monitor.get(), 40, 44);
  second.monitor->close();
  size_t told = 0;
  for (const auto& sink : {first.sink, second.sink})
    for (const auto& snapshot : sink->snapshots) told += snapshot->ablations.size();
  EXPECT_EQ(told, second.monitor->report().ablations.size());
}

TEST(Resume, SnapshotsSayWhereTheirSegmentBegan) {
  TinyModel model(1);
  Attached first(model);
  tiny_training(model, first.monitor.get(), 0, 7);
  Attached second(model);
  second.monitor->load_state_dict(first.monitor->state_dict());
  tiny_training(model, second.monitor.get(), 7, 12);
  first.monitor->close();
  second.monitor->close();
  EXPECT_EQ(first.sink->snapshots.back()->segment_start, -1);
  EXPECT_EQ(second.sink->snapshots.back()->segment_start, 7);
}

TEST(Resume, AnotherProbeIsRefusedByName) {
  TinyModel model(1);
  Attached first(model);
  tiny_training(model, first.monitor.get(), 0, 3);
  Attached second(model, {}, /*with_probe=*/false);
  ProbeOptions probe = testing::tiny_probe();
  probe.examples = 24;
  second.monitor->set_probe(
      model, [&model](const at::Tensor& tokens) { return model.forward(tokens); }, probe);
  try {
    second.monitor->load_state_dict(first.monitor->state_dict());
    FAIL() << "N differs";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("examples 16"));
  }
}

TEST(Resume, OtherHeldOutRowsAndWholeProbesAreAnotherProbe) {
  const at::Tensor rows = at::arange(8 * TinyModel::kContext, at::kLong)
                              .remainder(TinyModel::kVocab)
                              .add(at::arange(8, at::kLong).repeat_interleave(TinyModel::kContext))
                              .remainder(TinyModel::kVocab)
                              .reshape({8, TinyModel::kContext});
  const auto refusal = [&](const std::function<void(ProbeOptions&)>& change) -> std::string {
    TinyModel model(1);
    ProbeOptions probe = testing::tiny_probe();
    probe.held_out = rows.clone();
    const auto forward = [&model](const at::Tensor& tokens) { return model.forward(tokens); };
    Attached first(model, {}, /*with_probe=*/false);
    first.monitor->set_probe(model, forward, probe);
    tiny_training(model, first.monitor.get(), 0, 3);
    change(probe);
    Attached second(model, {}, /*with_probe=*/false);
    second.monitor->set_probe(model, forward, probe);
    try {
      second.monitor->load_state_dict(first.monitor->state_dict());
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](ProbeOptions&) {}), "");
  EXPECT_THAT(refusal([](ProbeOptions& probe) { probe.held_out[7][3] = 1; }),
              ::testing::HasSubstr("held-out rows [8, "));
  EXPECT_THAT(refusal([](ProbeOptions& probe) { probe.held_out = at::Tensor(); }),
              ::testing::HasSubstr("held-out rows none"));
  EXPECT_THAT(refusal([](ProbeOptions& probe) { probe.whole_every = 3; }),
              ::testing::HasSubstr("whole every 4"));
}

TEST(Resume, ResumptionsAreNumbered) {
  TinyModel model(1);
  Attached first(model);
  tiny_training(model, first.monitor.get(), 0, 3);
  Attached second(model);
  second.monitor->load_state_dict(first.monitor->state_dict());
  tiny_training(model, second.monitor.get(), 3, 12);
  second.monitor->close();
  ASSERT_FALSE(second.sink->snapshots.empty());
  EXPECT_EQ(second.sink->snapshots.back()->segment, 1);
}

TEST(Resume, AnotherConfigurationIsRefusedByName) {
  TinyModel model(1);
  Attached first(model);
  tiny_training(model, first.monitor.get(), 0, 3);
  const StateDict state = first.monitor->state_dict();
  Options other;
  other.integral.axis = IntegralAxis::kStep;
  Attached second(model, other);
  try {
    second.monitor->load_state_dict(state);
    FAIL() << "the axis differs";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("ln_tokens"));
  }
  EXPECT_THROW(second.monitor->load_state_dict({}), std::runtime_error);
  Attached third(model, {}, /*with_probe=*/false);
  EXPECT_THROW(third.monitor->load_state_dict(state), std::runtime_error);
}

}  // namespace
}  // namespace headscope
