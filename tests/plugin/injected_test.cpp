// Faults injected at the edge between monitor and host: training goes on with the same bits, the
// fault is counted by kind and logged once, and the measurement comes back when the fault goes.

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <new>
#include <thread>

#include "tests/support/models/tiny_model.h"
#include "tests/support/sanitizers.h"

namespace headscope {
namespace {

using testing::Attached;
using ::testing::HasSubstr;
using testing::tiny_training;
using testing::TinyModel;

std::vector<double> untouched(int64_t steps) {
  TinyModel model(2);
  return tiny_training(model, nullptr, 0, steps);
}

/// The CPU allocator of torch, which fails where a test says so.
class FailingAllocator final : public c10::Allocator {
 public:
  enum class Kind { kNone, kBadAlloc, kOutOfMemory };
  c10::DataPtr allocate(size_t bytes) override {
    const bool fails =
        here != Kind::kNone || (elsewhere != Kind::kNone && std::this_thread::get_id() != training);
    const Kind kind = here != Kind::kNone ? here : elsewhere.load();
    if (fails && kind == Kind::kBadAlloc) throw std::bad_alloc();
    TORCH_CHECK_WITH(OutOfMemoryError, !fails, "injected: ", bytes, " bytes are not to be had");
    return real->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return real->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t count) const override {
    real->copy_data(to, from, count);
  }

  static thread_local Kind here;             // on this thread
  std::atomic<Kind> elsewhere{Kind::kNone};  // on all threads but the training one
  std::thread::id training = std::this_thread::get_id();
  c10::Allocator* real = c10::GetCPUAllocator();
};
thread_local FailingAllocator::Kind FailingAllocator::here = FailingAllocator::Kind::kNone;

/// Installed for the scope.
struct AllocatorScope {
  static FailingAllocator& allocator() {
    static auto* own = new FailingAllocator();  // tensors outlive every test
    return *own;
  }
  AllocatorScope() {
    at::set_num_threads(1);  // an operator's helper threads are the training's
    c10::SetCPUAllocator(&allocator(), 200);
  }
  ~AllocatorScope() { c10::SetCPUAllocator(allocator().real, 200); }
};

TEST(Injected, NoMemoryInATapCostsOnlyTheMeasurement) {
  const auto want = untouched(80);
  const AllocatorScope scope;
  for (const auto kind :
       {FailingAllocator::Kind::kBadAlloc, FailingAllocator::Kind::kOutOfMemory}) {
    TinyModel model(2);
    Attached attached(model, {}, /*with_probe=*/false);
    bool failing = true;
    model.on_tap = [&](bool inside) {
      FailingAllocator::here = inside && failing ? kind : FailingAllocator::Kind::kNone;
    };
    auto losses = tiny_training(model, attached.monitor.get(), 0, 40);
    EXPECT_GT(attached.monitor->health().errors.at("tap"), 0u);
    EXPECT_EQ(attached.monitor->report().last_train, nullptr);
    EXPECT_EQ(attached.log->size(), 1u);
    failing = false;
    for (const double loss : tiny_training(model, attached.monitor.get(), 40, 80))
      losses.push_back(loss);
    EXPECT_NE(attached.monitor->report().last_train, nullptr) << "it comes back";
    EXPECT_EQ(losses, want);
  }
}

TEST(Injected, NoMemoryOnTheAnalysisThreadCostsOnlyTheSnapshot) {
  const auto want = untouched(60);
  const AllocatorScope scope;
  FailingAllocator& allocator = AllocatorScope::allocator();
  TinyModel model(2);
  Attached attached(model);
  allocator.elsewhere = FailingAllocator::Kind::kBadAlloc;
  auto losses = tiny_training(model, attached.monitor.get(), 0, 30);
  EXPECT_GT(attached.monitor->report().health.errors.at("analysis"), 0u);
  EXPECT_EQ(attached.monitor->report().last_probe, nullptr);
  allocator.elsewhere = FailingAllocator::Kind::kNone;
  for (const double loss : tiny_training(model, attached.monitor.get(), 30, 60))
    losses.push_back(loss);
  EXPECT_NE(attached.monitor->report().last_probe, nullptr);
  EXPECT_EQ(losses, want);
}

/// Blocks until it is let go.
class HangingSink : public Sink {
 public:
  std::string name() const override { return "hanging"; }
  void publish(const std::shared_ptr<const Snapshot>&) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return released_; });
    ++taken;
  }
  void release() {
    const std::scoped_lock lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  std::atomic<int> taken{0};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false;
};

TEST(Injected, AHangingSinkNeverHoldsAStep) {
  const auto sink = std::make_shared<HangingSink>();
  TinyModel model(2);
  Options options;
  options.schedule = {.train_every = 1, .longest_probe_gap = 5, .budget = 0};
  options.sink_queue = 4;
  options.log = [](LogLevel, const std::string&) {};
  Monitor monitor(options, {sink});
  model.monitor = &monitor;
  EXPECT_EQ(tiny_training(model, &monitor, 0, 40), untouched(40));
  EXPECT_GT(monitor.report().health.snapshots_dropped, 30u);
  sink->release();
  monitor.close();
  EXPECT_GT(sink->taken, 0);
}

TEST(Injected, ASinkThatNeverComesBackIsLeftBehindAtClose) {
  const auto sink = std::make_shared<HangingSink>();
  TinyModel model(1);
  Options options;
  options.log = [](LogLevel, const std::string&) {};
  auto monitor = std::make_unique<Monitor>(options, std::vector<std::shared_ptr<Sink>>{sink});
  model.monitor = monitor.get();
  tiny_training(model, monitor.get(), 0, 5);
  monitor->close(/*timeout_seconds=*/0.05);
  EXPECT_EQ(monitor->health().errors.at("sink"), 1u);
  monitor.reset();
  sink->release();  // the thread that was left behind may end now
}

TEST(Injected, AThrowingCallbackIsCounted) {
  TinyModel model(2);
  Options options;
  options.rules.mass_floor = 0.05;
  options.on_event = [](const Event&) { throw 7; };
  Attached attached(model, options);
  EXPECT_EQ(tiny_training(model, attached.monitor.get(), 0, 60), untouched(60));
  attached.monitor->close();
  EXPECT_GT(attached.monitor->health().errors.at("callback"), 0u);
}

TEST(Injected, TheHostsOwnExceptionPassesThrough) {
  TinyModel model(2), alone(2);
  Attached attached(model);
  const auto run = [](TinyModel& trained, Monitor* monitor) {
    bool thrown = false;
    trained.on_forward = [&] {
      if (!thrown && at::GradMode::is_enabled()) {
        thrown = true;
        throw std::runtime_error("host");
      }
    };
    EXPECT_THROW(tiny_training(trained, monitor, 0, 30), std::runtime_error);
    return tiny_training(trained, monitor, 0, 30);
  };
  EXPECT_EQ(run(model, attached.monitor.get()), run(alone, nullptr));
  EXPECT_EQ(attached.monitor->report().last_train->heads.size(), 8u);
  for (const auto& [kind, count] : attached.monitor->health().errors) EXPECT_EQ(count, 0u) << kind;
}

/// Exit status of a child that runs `work`; an alarm ends a child that hangs.
int status_of_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    at::set_num_threads(1);  // OpenMP's threads are not in the child
    _exit(work());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(Injected, AForkedChildTrainsOnWithAnInertMonitor) {
  if (testing::kAddressSanitizer) GTEST_SKIP() << "the sanitizer's allocator is not fork-safe";
  const auto want = untouched(60);
  TinyModel model(2);
  Attached attached(model);
  std::vector<double> losses;
  for (int64_t step = 0; step < 60; ++step) {
    if (step % 4 == 1) {
      // In the middle of a measured step too: the child leaves it through its scope.
      auto scope = attached.monitor->begin_step({.step = step});
      EXPECT_EQ(status_of_child([&] {
                  Monitor& monitor = *attached.monitor;
                  const double loss = tiny_training(model, &monitor, step, step + 1).front();
                  monitor.verify();
                  monitor.report();
                  monitor.close();
                  attached.monitor.reset();
                  return loss == want[static_cast<size_t>(step)] ? 0 : 1;
                }),
                0)
          << "at step " << step;
    }
    losses.push_back(tiny_training(model, attached.monitor.get(), step, step + 1).front());
  }
  EXPECT_EQ(losses, want);
  EXPECT_GT(attached.monitor->report().health.probes, 5u);
}

TEST(Injected, ForkingFromAnotherThreadAtAnyMoment) {
  if (testing::kAddressSanitizer) GTEST_SKIP() << "the sanitizer's allocator is not fork-safe";
  TinyModel model(2);
  Attached attached(model);
  std::atomic<bool> stop{false};
  int children = 0;
  std::thread forker([&] {
    while (!stop) {
      EXPECT_EQ(status_of_child([&] {
                  attached.monitor->close();
                  attached.monitor.reset();
                  return 0;
                }),
                0);
      ++children;
    }
  });
  const auto losses = tiny_training(model, attached.monitor.get(), 0, 120);
  stop = true;
  forker.join();
  EXPECT_GT(children, 3);
  EXPECT_EQ(losses, untouched(120));
}

TEST(Injected, SigtermInAStepEndsTheRunAsItWouldWithoutUs) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "threads after a fork";
  const auto run = [](bool watched) {
    return status_of_child([&] {
      TinyModel model(1);
      std::shared_ptr<Monitor> monitor;
      if (watched) {
        Options options;
        options.port = 0;
        options.log = [](LogLevel, const std::string&) {};
        monitor = Monitor::attach(options);
        model.monitor = monitor.get();
      }
      model.on_forward = [] { kill(getpid(), SIGTERM); };
      tiny_training(model, monitor.get(), 0, 100);
      return 3;
    });
  };
  const int status = run(true);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  EXPECT_EQ(status, run(false));
}

TEST(Injected, TheHostsSignalsNeverRunOnOurThreads) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "threads after a fork";
  EXPECT_EQ(status_of_child([] {
              // Nobody but the monitor's threads could take it: it has to wait.
              sigset_t own, pending;
              sigemptyset(&own);
              sigaddset(&own, SIGUSR1);
              Options options;
              options.log = [](LogLevel, const std::string&) {};
              const Monitor monitor(options, {});
              signal(SIGUSR1, [](int) { _exit(1); });
              pthread_sigmask(SIG_BLOCK, &own, nullptr);
              kill(getpid(), SIGUSR1);
              std::this_thread::sleep_for(std::chrono::milliseconds(100));
              sigpending(&pending);
              return sigismember(&pending, SIGUSR1) == 1 ? 0 : 2;
            }),
            0);
}

/// Attention without a model: one layer of any shape.
struct Shaped {
  int64_t heads = 4, width = 4;
  at::Tensor run(Monitor& monitor, const at::Tensor& tokens) const {
    const at::Tensor q = at::randn({tokens.size(0), heads, tokens.size(1), width});
    static_cast<void>(
        monitor.observe(0, q, q, q, at::scaled_dot_product_attention(q, q, q, {}, 0.0, true)));
    return {};
  }
};

TEST(Injected, HeadsThatChangeInNumberOrWidthBeginAnew) {
  TinyModel model(1);
  Attached attached(model, {}, /*with_probe=*/false);
  Shaped shaped;
  attached.monitor->set_probe(
      model, [&](const at::Tensor& tokens) { return shaped.run(*attached.monitor, tokens); },
      testing::tiny_probe());
  int64_t step = 0;
  const auto run = [&](int64_t steps) {
    for (const int64_t end = step + steps; step < end; ++step) {
      auto scope = attached.monitor->begin_step(
          {.step = step, .tokens_seen = 64.0 * static_cast<double>(step)});
      shaped.run(*attached.monitor, testing::tiny_batch(step));
    }
    return attached.monitor->report();
  };
  const double before = run(40).last_probe->heads.at(0).pr_integral;
  for (const auto& [heads, width] :
       std::vector<std::pair<int64_t, int64_t>>{{6, 4}, {2, 4}, {2, 8}, {4, 4}}) {
    shaped = {heads, width};
    const RunReport report = run(12);
    EXPECT_EQ(report.last_probe->heads.size(), static_cast<size_t>(heads));
    EXPECT_LT(report.last_probe->heads.at(0).pr_integral, before);
    for (const auto& [kind, count] : report.health.errors) EXPECT_EQ(count, 0u) << kind;
  }
  EXPECT_THAT(*attached.log, ::testing::Contains(HasSubstr("begin anew")));
}

TEST(Injected, CountersBeyondEveryIntegerWidthStayExact) {
  for (const int64_t step :
       {(int64_t{1} << 31) - 1, (int64_t{1} << 32) - 1, (int64_t{1} << 53) - 20}) {
    TinyModel model(1);
    Options options;
    options.schedule.train_every = 1;
    Attached attached(model, options);
    for (int64_t s = step; s < step + 4; ++s) {
      auto scope = attached.monitor->begin_step({.step = s, .tokens_seen = static_cast<double>(s)});
      model.forward(testing::tiny_batch(s));
    }
    const RunReport report = attached.monitor->report();
    EXPECT_EQ(report.last_train->step, step + 3);
    EXPECT_EQ(report.last_train->tokens, static_cast<double>(step + 3));
    EXPECT_EQ(report.last_probe->step, step);
  }
}

// Micro-batches on worker threads: each thread tells and runs its own.
TEST(Injected, ATrainerOfSeveralThreadsIsReadWhole) {
  TinyModel model(2);
  Options options;
  options.schedule.train_every = 1;
  Attached attached(model, options, /*with_probe=*/false);
  for (int64_t step = 0; step < 20; ++step) {
    auto scope = attached.monitor->begin_step({.step = step});
    std::vector<std::thread> workers;
    for (int64_t worker = 0; worker < 3; ++worker) {
      workers.emplace_back([&, worker] {
        for (int64_t micro = 0; micro < 2; ++micro) {
          // Batches of different sizes: figures of one thread must not meet another's plan.
          const at::Tensor tokens = testing::tiny_batch(step * 8 + worker * 2 + micro, 2 + worker);
          scope.micro_batch(tokens);
          model.forward(tokens).sum().item<double>();
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
  }
  const RunReport report = attached.monitor->report();
  for (const auto& [kind, count] : report.health.errors) EXPECT_EQ(count, 0u) << kind;
  ASSERT_EQ(report.last_train->heads.size(), 8u);
  EXPECT_EQ(report.last_train->heads[0].samples, (2 + 3 + 4) * 2 * TinyModel::kContext);
  EXPECT_TRUE(report.last_train->heads[0].patterns[0].mass <= 1) << "induction was told its ids";
}

int64_t resident_bytes() {
  long pages = 0, resident = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = -1;
  if (file != nullptr) std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

// 10^4 steps: what a step leaves behind would show. A probe leaves a point of the trajectory a
// head.
TEST(Injected, MemoryIsFlatOverTenThousandSteps) {
  if (testing::kSanitized) GTEST_SKIP() << "the sanitizer keeps what was freed";
  TinyModel model(1);
  Options options;
  options.schedule = {.train_every = 5, .longest_probe_gap = 100, .budget = 0};
  options.log = [](LogLevel, const std::string& line) { ADD_FAILURE() << line; };
  Monitor monitor(options, {});
  monitor.set_probe(
      model, [&](const at::Tensor& tokens) { return model.forward(tokens); },
      testing::tiny_probe());
  model.monitor = &monitor;
  tiny_training(model, &monitor, 0, 2000);
  const int64_t early = resident_bytes();
  tiny_training(model, &monitor, 2000, 10000);
  const int64_t late = resident_bytes();
  RecordProperty("grown_bytes", std::to_string(late - early));
  EXPECT_GT(early, 0);
  EXPECT_LT(late - early, 4 << 20);
  EXPECT_GE(monitor.report().health.measured_steps, 2000u);
}

}  // namespace
}  // namespace headscope
