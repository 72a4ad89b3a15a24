#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "csrc/monitor/analysis/null_tests.h"
#include "csrc/monitor/analysis/state_codec.h"
#include "csrc/monitor/edge/health.h"
#include "csrc/monitor/edge/sink_thread.h"
#include "csrc/monitor/taps/capture.h"
#include "csrc/monitor/taps/capture_info.h"
#include "headscope/circuits.h"
#include "headscope/monitor.h"
#include "headscope/trajectory.h"

namespace headscope {

/// Everything that is derived from captures and follows them through training. A deterministic
/// function of the captures and verdicts in order (wall times apart). One caller at a time: the
/// analysis thread, or the training thread after drain().
class Analysis {
 public:
  Analysis(const Options& options, std::shared_ptr<HealthCounters> health,
           std::shared_ptr<FaultGate> gate, SinkThread& sinks);

  /// The probe's patterns, context and plan; before it, train readings use the standard patterns.
  /// definition: what readings must share to be compared, in words; saved with the state.
  void set_probe(std::shared_ptr<const ProbePlan> plan, std::string definition);

  void take_train(const Capture& capture, const CaptureInfo& info);
  void take_probe(const Capture& capture, const CaptureInfo& info);
  /// Enters the outcome of an ablation; it travels with the next snapshot.
  void take_ablation(const AblationReport& report, double tokens, double wall_time);

  /// Enters what a screen has calibrated; it travels with the next snapshot (calibrations.h).
  void take_calibrations(const std::vector<NullCalibration>& nulls, bool standing);

  /// Enters an event of the schedule's; it travels with the next snapshot.
  void take_event(Event event);

  /// A probe's first quarter decides it: nothing in it is near a critical value or a threshold.
  /// Thread: training, after drain(); the capture lies on the CPU.
  bool decided_by(const Capture& capture) const;
  /// Probes taken so far.
  int64_t probes() const;

  /// The circuit to verify now, if one is due.
  std::optional<CircuitTracker::Due> verification_due() const;
  /// Circuits that are formed (or under a verdict), with their heads.
  std::vector<CircuitTracker::Due> formed_circuits() const;
  /// Readings of the last probe: what controls are drawn from. Null before the first.
  std::shared_ptr<const Snapshot> last_probe() const;
  const std::vector<Pattern>& patterns() const { return patterns_; }
  void report(RunReport& report) const;
  int64_t segment() const { return segment_; }
  /// Publishes events and ablations that no later measurement would carry.
  void flush(const CaptureInfo& info);

  std::string save() const;
  /// Throws std::runtime_error naming the difference. The next segment begins, at `next_step`.
  void load(const std::string& bytes, int64_t next_step);

 private:
  Snapshot begin_snapshot(const CaptureInfo& info, Source source, const Capture& capture) const;
  std::vector<HeadReading> blank_readings(const Capture& capture) const;
  void classify(Snapshot& snapshot) const;
  /// What a quarter says of the margins of circuits that have not formed: z, and never a call.
  std::vector<PatternNulls> early_nulls(const Capture& capture,
                                        std::span<HeadReading> readings) const;
  /// PR on random tokens as of the last probe that ran them.
  double last_null(const HeadId& id) const;
  /// Which tests a probe needs: circuits that have formed are settled and tested on every fourth
  /// probe.
  std::vector<NullsWanted> nulls_wanted(int64_t probe_number) const;
  /// The probe's heads in the tracker's order: a known head that did not report is not finite, new
  /// ones come last.
  std::vector<HeadReading> in_tracker_order(const std::vector<HeadReading>& heads,
                                            std::vector<PatternNulls>& nulls);
  /// Heads of a layer whose number or width has changed begin anew: figures of the two shapes are
  /// not comparable.
  void forget_reshaped(const Capture& capture);
  void finish(Snapshot snapshot);
  void remember(const std::vector<Event>& events);

  const Options options_;
  std::shared_ptr<HealthCounters> health_;
  std::shared_ptr<FaultGate> gate_;
  SinkThread& sinks_;

  mutable std::mutex mutex_;  // report() against the analysis thread
  std::vector<Pattern> patterns_ = standard_patterns();
  std::shared_ptr<const ProbePlan> plan_;
  std::string probe_definition_;
  std::optional<CircuitTracker> tracker_;
  SpecialisationTracker specialisation_;
  std::vector<HeadId> probe_heads_;  // the tracker's order
  std::map<HeadId, Trajectory> trajectories_;
  std::map<int64_t, LayerShape> shapes_;  // of the layers' outputs, as of the last probe
  std::vector<Event> events_;             // of the whole run
  std::vector<Event> pending_events_;     // for the next snapshot
  std::vector<AblationReport> ablations_;
  std::vector<AblationReport> pending_ablations_;
  Calibrations calibrations_;
  std::shared_ptr<const Snapshot> last_probe_, last_train_;
  int64_t segment_ = 0;
  int64_t segment_start_ = -1;
};

}  // namespace headscope
