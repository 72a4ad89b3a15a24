#include "csrc/monitor/steps/steps.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string>
#include <thread>

namespace headscope {

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Steps::Steps(const Options& options, HealthCounters& health, FaultGate& gate)
    : schedule_(options.schedule),
      clock_(options.clock),
      axis_(options.integral.axis),
      health_(health),
      gate_(gate),
      scheduler_(options.schedule),
      budget_(options.schedule.budget, options.clock) {
  health_.budget_ratio.store(options.schedule.budget, std::memory_order_relaxed);
}

void Steps::begin(const StepInfo& info) {
  current_ = {info.step.value_or(next_step_), info.tokens_seen, wall_clock(), kNaN,
              scheduler_.state().last_probe_step};
  next_step_ = current_.step + 1;
}

Steps::Due Steps::scheduled(bool has_probe) const {
  const bool probe = has_probe && scheduler_.probe_due(current_.step, current_.tokens);
  return {probe, scheduler_.train_due(current_.step), probe};
}

Steps::Due Steps::within_budget(const Due& scheduled, bool analysis_idle, bool verification_due) {
  // Where a wait would come, the measurement comes later instead.
  if (analysis_idle) charge_analysis();
  Due due;
  due.probe = scheduled.probe && analysis_idle && budget_.allows(Budget::Work::kProbe);
  // A probe's analysis outlasts the step: the training batch of another step will do.
  due.train =
      scheduled.train && analysis_idle && !due.probe && budget_.allows(Budget::Work::kTrain);
  due.verification = analysis_idle && verification_due;
  const bool put_off = scheduled.probe && !due.probe;
  if (put_off && deferred_since_ < 0) deferred_since_ = current_.step;
  if (put_off || (scheduled.train && !due.train && !due.probe))
    health_.deferred.fetch_add(1, std::memory_order_relaxed);
  health_.budget_used_ratio.store(budget_.used_ratio(), std::memory_order_relaxed);
  return due;
}

void Steps::charge_analysis() {
  const double cpu =
      1e-9 * static_cast<double>(health_.analysis_cpu_nanoseconds.load(std::memory_order_relaxed));
  if (cpu <= charged_cpu_) return;
  // A thread of its own takes one core of those that training could use.
  const double cores = std::max(1u, std::thread::hardware_concurrency());
  const double seconds = (cpu - charged_cpu_) / cores;
  analysing_probe_ ? budget_.spent_aside(seconds) : budget_.spent(Budget::Work::kTrain, seconds, 0);
  charged_cpu_ = cpu;
}

void Steps::train_begins() {
  tap_nanoseconds_at_begin_ = health_.tap_nanoseconds.load(std::memory_order_relaxed);
}

void Steps::train_ends() {
  budget_.spent(Budget::Work::kTrain, 1e-9 * static_cast<double>(health_.tap_nanoseconds.load() -
                                                                 tap_nanoseconds_at_begin_));
}

std::optional<Event> Steps::take_deferral() {
  if (deferred_since_ < 0) return std::nullopt;
  const double expected = budget_.expected(Budget::Work::kProbe);
  Event event;
  event.step = current_.step;
  event.tokens = current_.tokens;
  event.wall_time = current_.wall_time;
  event.previous_probe_step = current_.previous_probe_step;
  event.kind = "deferred";
  event.figures = {{"due_step", static_cast<double>(deferred_since_)},
                   {"expected_seconds", expected},
                   {"budget_ratio", schedule_.budget}};
  event.rule = "a probe that was due ran when the overhead budget allowed it";
  gate_.log(LogLevel::kInfo,
            c10::str("a probe due at step ", deferred_since_, " ran at step ", current_.step,
                     ": one takes about ", expected, " s and Schedule::budget is ",
                     schedule_.budget, " (each is recorded as an event of kind deferred)"),
            "deferred");
  deferred_since_ = -1;
  return event;
}

void Steps::warn_without_tokens() {
  if (std::isfinite(current_.tokens) || axis_ == IntegralAxis::kStep) return;
  gate_.log(LogLevel::kWarning,
            std::string("begin_step was told no tokens_seen, so there is no PR integral over ") +
                to_string(axis_) + "; tell them, or set integral.axis to IntegralAxis::kStep",
            "tokens");
}

Steps::Saved Steps::save() const {
  const Scheduler::State& schedule = scheduler_.state();
  Saved saved;
  saved.schedule = {static_cast<double>(next_step_), static_cast<double>(schedule.last_probe_step),
                    schedule.last_probe_tokens, current_.tokens,
                    static_cast<double>(deferred_since_)};
  for (const Backoff& backoff : backoffs_) {
    const auto [skip, length] = backoff.save();
    saved.schedule.push_back(static_cast<double>(skip));
    saved.schedule.push_back(static_cast<double>(length));
  }
  saved.budget = budget_.save();
  return saved;
}

Steps::State Steps::decoded(const Saved& saved) const {
  const std::vector<double>& numbers = saved.schedule;
  constexpr size_t kFirstBackoff = 5;
  if (numbers.size() != kFirstBackoff + 2 * backoffs_.size())
    throw std::runtime_error("headscope: the state's 'schedule' has " +
                             std::to_string(numbers.size()) + " numbers");
  const auto whole = [&](size_t i) { return static_cast<int64_t>(numbers[i]); };
  State state{whole(0), {whole(1), numbers[2]},          numbers[3], whole(4),
              {},       Budget(schedule_.budget, clock_)};
  for (size_t i = 0; i < backoffs_.size(); ++i)
    state.backoffs[i] = {whole(kFirstBackoff + 2 * i), whole(kFirstBackoff + 2 * i + 1)};
  state.budget.restore(saved.budget);
  return state;
}

void Steps::restore(State state) {
  next_step_ = state.next_step;
  scheduler_.restore(state.schedule);
  deferred_since_ = state.deferred_since;
  for (size_t i = 0; i < backoffs_.size(); ++i)
    backoffs_[i].restore(state.backoffs[i].first, state.backoffs[i].second);
  budget_ = std::move(state.budget);
  // Until the next begin_step the run stands at its last step: what verify() and close() date their
  // results by.
  current_ = {next_step_ - 1, state.tokens, wall_clock(), kNaN, state.schedule.last_probe_step};
}

}  // namespace headscope
