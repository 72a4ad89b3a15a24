#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace headscope {

/// What measuring may cost: a share of wall time over every ten minutes (or over the time in which
/// one piece of work fits the share, if that is longer). Training captures may use a quarter of it,
/// probes and verifications together three quarters, verifications half of those. A window's share
/// may be spent at its start: circuits form early. One caller at a time; the clock is injected.
class Budget {
 public:
  enum class Work : uint8_t { kTrain, kProbe, kVerify };
  static constexpr size_t kWorks = 3;
  static constexpr double kWindowSeconds = 600;

  /// share 0: no bound, everything is allowed and the clock is never read.
  Budget(double share, std::function<double()> clock);

  bool bounded() const { return share_ > 0; }
  double now() const { return bounded() ? clock_() : 0; }
  /// Whether `pieces` more of this work fit now. Work that was never done before does.
  bool allows(Work work, double pieces = 1) const;
  /// Enters the cost of `pieces` of work that ended now.
  void spent(Work work, double seconds, double pieces = 1);
  /// Enters what a probe costs elsewhere, after it was entered itself: the analysis thread's share
  /// of the machine.
  void spent_aside(double seconds);
  /// What one piece costs, an exponential mean; 0: not known.
  double expected(Work work) const;
  /// Spent in the last ten minutes over what they allow, 0 without a bound.
  double used_ratio() const;

  /// Costs, and the window's entries by age: times of another process's clock mean nothing.
  std::vector<double> save() const;
  /// Throws std::runtime_error on other numbers.
  void restore(const std::vector<double>& state);

 private:
  struct Entry {
    double time, seconds;
    Work work;
  };
  double spent_since(double start, Work work) const;
  double window_of(Work work, double cost) const;
  void enter(Work work, double seconds);

  double share_;
  std::function<double()> clock_;
  std::array<double, kWorks> mean_{};
  double aside_ = 0;  // mean cost of a probe elsewhere
  std::deque<Entry> entries_;
};

}  // namespace headscope
