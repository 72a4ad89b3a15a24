#include "csrc/monitor/analysis/analysis.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "csrc/monitor/analysis/attention_readings.h"
#include "csrc/monitor/analysis/spectra.h"
#include "csrc/monitor/analysis/state_codec.h"
#include "csrc/monitor/edge/host_guard.h"
#include "headscope/screen.h"

namespace headscope {
namespace {

// Circuits that have formed are tested on every fourth probe, from the first: where
// ProbeOptions::whole_every is the same, these are whole.
constexpr int64_t kSettledEvery = 4;
// A quarter of the rows has half of the z that all of them have. Below this nothing is near a
// critical value, which is 4 or more.
constexpr double kNearZ = 2;
// A level that one draw, whose p is 1/2 at least, cannot meet.
constexpr double kNeverSignificant = 1e-6;

bool is_settled(const CircuitReading& circuit) {
  return circuit.formed_step >= 0 && circuit.state != CircuitState::kLost;
}

/// What is known of a few rows only: no spectrum.
void forget_spectrum(HeadReading& reading) {
  reading.participation_ratio = reading.participation_ratio_centred =
      reading.participation_ratio_quadratic = reading.participation_ratio_quadratic_centred =
          reading.null_participation_ratio = kNaN;
  reading.eigenvalues.clear();
  reading.samples = 0;
}

/// Whether a quarter of the rows is enough to see that a head neither enters nor leaves any
/// pattern.
bool far_from_thresholds(const CircuitTracker& tracker, const ProbePlan& plan,
                         const CircuitRules& rules, const HeadReading& reading) {
  // Parts of what `formed` needs between which a quarter's figures may lie on either side of the
  // boundary: 1 to enter, leave_fraction to leave.
  // Patterns that are defined by a position have four queries a row, so that theirs vary less.
  for (size_t p = 0; p < reading.patterns.size(); ++p) {
    const PatternReading& figures = reading.patterns[p];
    const bool sharp = plan.place_in_queries(p) >= 0;
    const double below = sharp ? 0.8 : 0.6, above = sharp ? 1.25 : 1.7;
    double reach = figures.selectivity / tracker.formed_threshold(p);
    if (rules.mass_floor > 0 && !std::isnan(figures.mass))
      reach = std::min(reach, figures.mass / rules.mass_floor);
    const bool formed = tracker.head_state(p, reading.id) == CircuitState::kFormed;
    const double boundary = formed ? rules.leave_fraction : 1;
    if (reach > below * boundary && reach < above * boundary) return false;
    // Beyond the boundary on the side of a change.
    if (formed ? reach <= below * boundary : reach >= above * boundary) return false;
  }
  return true;
}

}  // namespace

Analysis::Analysis(const Options& options, std::shared_ptr<HealthCounters> health,
                   std::shared_ptr<FaultGate> gate, SinkThread& sinks)
    : options_(options), health_(std::move(health)), gate_(std::move(gate)), sinks_(sinks) {}

void Analysis::set_probe(std::shared_ptr<const ProbePlan> plan, std::string definition) {
  const std::scoped_lock lock(mutex_);
  probe_definition_ = std::move(definition);
  probe_heads_.clear();
  plan_ = std::move(plan);
  patterns_ = plan_->patterns;
  tracker_.emplace(patterns_, plan_->contexts(), options_.rules);
}

std::vector<HeadReading> Analysis::blank_readings(const Capture& capture) const {
  std::vector<HeadReading> readings;
  for (const auto& [layer, own] : capture.layers) {
    const int64_t heads = own.spectrum.empty() ? 0 : own.spectrum.gram.size(0);
    for (int64_t h = 0; h < heads; ++h) {
      HeadReading reading;
      reading.id = {static_cast<int32_t>(layer), static_cast<int32_t>(h)};
      reading.patterns.resize(patterns_.size());
      readings.push_back(std::move(reading));
    }
  }
  return readings;
}

Snapshot Analysis::begin_snapshot(const CaptureInfo& info, Source source,
                                  const Capture& capture) const {
  Snapshot snapshot;
  snapshot.step = info.step;
  snapshot.tokens = info.tokens;
  snapshot.wall_time = info.wall_time;
  snapshot.loss = info.loss;
  snapshot.segment = segment_;
  snapshot.segment_start = segment_start_;
  snapshot.source = source;
  snapshot.context = capture.context;
  snapshot.probe_interval = info.previous_probe_step < 0 ? 0 : info.step - info.previous_probe_step;
  snapshot.integral_axis = to_string(options_.integral.axis);
  for (const Pattern& pattern : patterns_) snapshot.patterns.push_back(pattern.name);
  if (!capture.layers.empty()) snapshot.dtype = c10::toString(capture.layers.begin()->second.type);
  snapshot.heads = blank_readings(capture);
  return snapshot;
}

void Analysis::classify(Snapshot& snapshot) const {
  const CircuitRules& rules = options_.rules;
  const int64_t span = snapshot.source == Source::kProbe ? plan_->span : snapshot.context;
  const double threshold =
      rules.scale_to_context ? scaled_threshold(rules.class_at_256, span) : rules.class_at_256;
  uint64_t nonfinite = 0;
  for (HeadReading& reading : snapshot.heads) {
    const auto best = best_pattern(reading.patterns, threshold);
    reading.best_pattern = best ? patterns_[*best].name : "unclassified";
    nonfinite += reading.finite ? 0 : 1;
  }
  health_->nonfinite_readings.fetch_add(nonfinite, std::memory_order_relaxed);
  if (nonfinite > 0) {
    gate_->log(LogLevel::kWarning,
               std::to_string(nonfinite) + " of " + std::to_string(snapshot.heads.size()) +
                   " heads read NaN or Inf at step " + std::to_string(snapshot.step) +
                   ": their figures are left out until they are finite again "
                   "(counted in headscope_nonfinite_readings_total)",
               "nonfinite");
  }
  for (size_t p = 0; p < patterns_.size(); ++p) {
    if (patterns_[p].name != "first-token") continue;
    const PatternShares shares = pattern_shares(snapshot.heads, p, threshold);
    snapshot.sink_any = shares.any;
    snapshot.sink_class = shares.by_class;
  }
}

void Analysis::take_train(const Capture& capture, const CaptureInfo& info) {
  const QuietScope quiet;
  Snapshot snapshot = begin_snapshot(info, Source::kTrain, capture);
  snapshot.controls = "lag_matched";
  for (const LayerReadings& own : read_spectra(capture, snapshot.heads))
    read_train_attention(*own.layer, capture.plans, patterns_, own.heads);
  classify(snapshot);
  health_->measured_steps.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  finish(std::move(snapshot));
}

void Analysis::take_probe(const Capture& capture, const CaptureInfo& info) {
  const QuietScope quiet;
  Snapshot snapshot = begin_snapshot(info, Source::kProbe, capture);
  snapshot.controls = to_string(plan_->controls);
  snapshot.repeat_gap = capture.repeat_gap;
  std::vector<double> max_pr;
  for (const LayerReadings& own : read_spectra(capture, snapshot.heads)) {
    max_pr.resize(max_pr.size() + own.heads.size(), own.most);
    read_probe_attention(*own.layer, *plan_, own.heads);
  }
  // Of fewer rows: a participation ratio is not to be compared with the others.
  if (!capture.whole)
    for (HeadReading& reading : snapshot.heads) forget_spectrum(reading);
  classify(snapshot);

  const int64_t probe_number = tracker_->probes() + 1;
  const CircuitRules& rules = options_.rules;
  double alpha = spent_alpha(rules.alpha, static_cast<int64_t>(patterns_.size()),
                             rules.planned_probes, probe_number);
  if (rules.precursor == Precursor::kEither) alpha /= 2;  // two tests may call
  std::vector<PatternNulls> nulls(patterns_.size());
  if (!capture.whole) {
    // It ended because nothing is near: z is shown, and nothing is called or denied.
    early_nulls(capture, snapshot.heads);
  } else if (alpha > 0) {  // a level of 0: the probe saves it for a later one
    // The first probe draws all of its null: the critical value is on the page from then on.
    nulls = test_nulls(capture, *plan_, nulls_wanted(probe_number),
                       {.alpha = alpha,
                        .floor = std::log(rules.emerging_selectivity),
                        .seed = options_.seed + static_cast<uint64_t>(probe_number),
                        .stop = probe_number == 1 ? StopDrawing::kNever : StopDrawing::kWhenClear},
                       snapshot.heads);
  }

  const std::scoped_lock lock(mutex_);
  forget_reshaped(capture);
  for (size_t i = 0; i < snapshot.heads.size(); ++i) {
    HeadReading& reading = snapshot.heads[i];
    Trajectory& trajectory = trajectories_.try_emplace(reading.id, options_.integral).first->second;
    trajectory.add({info.step, info.tokens, reading.participation_ratio});
    // Without told tokens a token axis has no integral: not measured, rather than zero.
    const bool on_axis =
        options_.integral.axis == IntegralAxis::kStep || std::isfinite(info.tokens);
    reading.pr_integral = on_axis ? trajectory.integral() : kNaN;
    // Random tokens run on some probes only; what they gave last stands.
    if (std::isnan(reading.null_participation_ratio))
      reading.null_participation_ratio = last_null(reading.id);
    const bool began = specialisation_.update(reading.id, reading.participation_ratio,
                                              reading.null_participation_ratio, max_pr[i]);
    reading.specialising = specialisation_.specialising(reading.id);
    if (!began) continue;
    Event event;
    event.step = info.step;
    event.tokens = info.tokens;
    event.wall_time = info.wall_time;
    event.previous_probe_step = info.previous_probe_step;
    event.kind = "specialising";
    event.head_level = true;
    event.heads = {reading.id};
    event.figures = {{"participation_ratio", reading.participation_ratio},
                     {"null_participation_ratio", reading.null_participation_ratio}};
    event.rule =
        "excess of the participation ratio over its own null rose and held; ranks heads, raises no "
        "alert";
    pending_events_.push_back(std::move(event));
  }
  const std::vector<HeadReading> heads = in_tracker_order(snapshot.heads, nulls);
  std::vector<Event> events =
      tracker_->update({info.step, info.tokens, info.wall_time, heads, std::move(nulls)});
  pending_events_.insert(pending_events_.end(), std::make_move_iterator(events.begin()),
                         std::make_move_iterator(events.end()));
  snapshot.circuits = tracker_->readings();
  health_->probes.fetch_add(1, std::memory_order_relaxed);
  health_->measured_steps.fetch_add(1, std::memory_order_relaxed);
  finish(std::move(snapshot));
}

double Analysis::last_null(const HeadId& id) const {
  if (!last_probe_) return kNaN;
  for (const HeadReading& before : last_probe_->heads)
    if (before.id == id) return before.null_participation_ratio;
  return kNaN;
}

std::vector<PatternNulls> Analysis::early_nulls(const Capture& capture,
                                                std::span<HeadReading> readings) const {
  std::vector<NullsWanted> wanted(patterns_.size());
  const auto circuits = tracker_->readings();
  for (size_t p = 0; p < wanted.size(); ++p)
    wanted[p] = {.margin = !is_settled(circuits[p]), .mass = false};
  // One draw: only the exact moments are asked for. It cannot be significant.
  return test_nulls(capture, *plan_, wanted,
                    {.alpha = kNeverSignificant,
                     .floor = std::log(options_.rules.emerging_selectivity),
                     .draws = 1},
                    readings);
}

bool Analysis::decided_by(const Capture& capture) const {
  std::vector<HeadReading> readings = blank_readings(capture);
  std::span<HeadReading> rest(readings);
  for (const auto& [index, layer] : capture.layers) {
    if (layer.spectrum.empty()) continue;
    const auto count = static_cast<size_t>(layer.spectrum.gram.size(0));
    read_probe_attention(layer, *plan_, rest.first(count));
    rest = rest.subspan(count);
  }
  // What other precursors call by is not looked at here.
  if (options_.rules.precursor != Precursor::kMargin) return false;
  const auto nulls = early_nulls(capture, readings);
  const auto circuits = tracker_->readings();
  for (size_t p = 0; p < patterns_.size(); ++p) {
    if (is_settled(circuits[p])) continue;
    if (!nulls[p].margin || !(nulls[p].margin->max_z <= kNearZ)) return false;
  }
  return std::all_of(readings.begin(), readings.end(), [&](const HeadReading& reading) {
    return reading.finite && far_from_thresholds(*tracker_, *plan_, options_.rules, reading);
  });
}

int64_t Analysis::probes() const { return tracker_ ? tracker_->probes() : 0; }

void Analysis::forget_reshaped(const Capture& capture) {
  for (const auto& [layer, own] : capture.layers) {
    if (own.spectrum.empty()) continue;
    const LayerShape now{own.spectrum.gram.size(0), own.spectrum.gram.size(1)};
    const LayerShape before = shapes_.try_emplace(layer, now).first->second;
    if (now == before) continue;
    shapes_[layer] = now;
    gate_->log(
        LogLevel::kWarning,
        c10::str("layer ", layer, " now has ", now.heads, " heads of ", now.width, " where it had ",
                 before.heads, " of ", before.width, ": the integrals of its heads begin anew"),
        "reshaped " + std::to_string(layer));
    const auto in_layer = [id = static_cast<int32_t>(layer)](const HeadId& head) {
      return head.layer == id;
    };
    std::erase_if(trajectories_, [&](const auto& entry) { return in_layer(entry.first); });
    specialisation_.forget(in_layer);
  }
}

std::vector<NullsWanted> Analysis::nulls_wanted(int64_t probe_number) const {
  std::vector<NullsWanted> wanted;
  for (const CircuitReading& circuit : tracker_->readings()) {
    const bool settled = is_settled(circuit);
    // A settled circuit's dates are frozen; its tests only let further heads emerge, and full draws
    // cost most there.
    const bool due = !settled || (probe_number - 1) % kSettledEvery == 0;
    wanted.push_back({due, due && (!settled || options_.rules.precursor != Precursor::kMargin)});
  }
  return wanted;
}

std::vector<HeadReading> Analysis::in_tracker_order(const std::vector<HeadReading>& heads,
                                                    std::vector<PatternNulls>& nulls) {
  std::map<HeadId, size_t> place;
  for (size_t i = 0; i < heads.size(); ++i) place[heads[i].id] = i;
  const std::set<HeadId> known(probe_heads_.begin(), probe_heads_.end());
  for (const HeadReading& head : heads) {
    if (!known.contains(head.id)) probe_heads_.push_back(head.id);
  }
  std::vector<HeadReading> ordered;
  for (const HeadId& id : probe_heads_) {
    const auto found = place.find(id);
    if (found != place.end()) {
      ordered.push_back(heads[found->second]);
      continue;
    }
    HeadReading silent;
    silent.id = id;
    silent.finite = false;
    silent.patterns.resize(patterns_.size());
    ordered.push_back(std::move(silent));
  }
  for (PatternNulls& pattern : nulls) {
    for (auto* test : {&pattern.margin, &pattern.mass}) {
      if (!*test) continue;
      NullTestResult& result = **test;
      const NullTestResult given = result;
      result.z.assign(ordered.size(), kNaN);
      result.excess.assign(ordered.size(), kNaN);
      result.beats.assign(ordered.size(), false);
      for (size_t i = 0; i < ordered.size(); ++i) {
        const auto found = place.find(ordered[i].id);
        if (found == place.end()) continue;
        result.z[i] = given.z[found->second];
        result.excess[i] = given.excess[found->second];
        result.beats[i] = given.beats[found->second];
      }
    }
  }
  return ordered;
}

// Called with the lock held.
void Analysis::finish(Snapshot snapshot) {
  remember(pending_events_);
  snapshot.events = std::exchange(pending_events_, {});
  snapshot.ablations = std::exchange(pending_ablations_, {});
  if (snapshot.circuits.empty() && tracker_) snapshot.circuits = tracker_->readings();
  calibrations_.enter(snapshot);
  snapshot.health = health_->read();
  if (!snapshot.heads.empty()) {
    auto shared = std::make_shared<const Snapshot>(snapshot);
    (snapshot.source == Source::kProbe ? last_probe_ : last_train_) = std::move(shared);
  }
  sinks_.publish(std::move(snapshot));
}

void Analysis::remember(const std::vector<Event>& events) {
  events_.insert(events_.end(), events.begin(), events.end());
}

void Analysis::take_ablation(const AblationReport& report, double tokens, double wall_time) {
  const std::scoped_lock lock(mutex_);
  ablations_.push_back(report);
  pending_ablations_.push_back(report);
  if (!report.gate) return;
  std::vector<Event> events = tracker_->apply_verdict(report, tokens, wall_time);
  pending_events_.insert(pending_events_.end(), events.begin(), events.end());
}

void Analysis::take_event(Event event) {
  const std::scoped_lock lock(mutex_);
  pending_events_.push_back(std::move(event));
}

void Analysis::flush(const CaptureInfo& info) {
  const std::scoped_lock lock(mutex_);
  if (pending_events_.empty() && pending_ablations_.empty() && calibrations_.pending.empty())
    return;
  // No reading belongs to this moment: events and ablations alone.
  Capture nothing;
  nothing.context = plan_ ? plan_->context : 0;
  finish(begin_snapshot(info, Source::kProbe, nothing));
}

std::optional<CircuitTracker::Due> Analysis::verification_due() const {
  return tracker_ ? tracker_->verification_due() : std::nullopt;
}

std::vector<CircuitTracker::Due> Analysis::formed_circuits() const {
  return tracker_ ? tracker_->formed_circuits() : std::vector<CircuitTracker::Due>();
}

std::shared_ptr<const Snapshot> Analysis::last_probe() const {
  const std::scoped_lock lock(mutex_);
  return last_probe_;
}

void Analysis::report(RunReport& report) const {
  const std::scoped_lock lock(mutex_);
  if (tracker_) report.circuits = tracker_->readings();
  calibrations_.mark(report.circuits);
  report.events = events_;
  report.events.insert(report.events.end(), pending_events_.begin(), pending_events_.end());
  report.ablations = ablations_;
  report.last_probe = last_probe_;
  report.last_train = last_train_;
  report.health = health_->read();
}

std::string Analysis::save() const {
  const std::scoped_lock lock(mutex_);
  AnalysisState state;
  state.segment = segment_;
  for (const auto& [id, trajectory] : trajectories_) state.trajectories[id] = trajectory.points();
  if (tracker_) state.tracker = tracker_->save();
  state.specialisation = specialisation_.save();
  state.events = events_;
  state.pending_events = pending_events_;
  state.ablations = ablations_;
  state.pending_ablations = pending_ablations_;
  state.calibrations = calibrations_;
  state.integral_axis = to_string(options_.integral.axis);
  state.probe_definition = probe_definition_;
  state.probe_heads = probe_heads_;
  state.shapes = shapes_;
  if (last_probe_) state.last_probe_heads = last_probe_->heads;
  return encode(state);
}

void Analysis::load(const std::string& bytes, int64_t next_step) {
  AnalysisState state = decode(bytes);
  const std::scoped_lock lock(mutex_);
  if (state.integral_axis != to_string(options_.integral.axis)) {
    throw std::runtime_error("headscope: the state integrates over " + state.integral_axis +
                             ", this monitor over " + to_string(options_.integral.axis) +
                             "; set Options::integral to the same axis");
  }
  if (!state.tracker.empty() && tracker_ && state.probe_definition != probe_definition_) {
    throw std::runtime_error("headscope: the state's probe is (" + state.probe_definition +
                             "), this monitor's (" + probe_definition_ +
                             "); readings of the two cannot be compared");
  }
  if (!state.tracker.empty()) {
    if (!tracker_)
      throw std::runtime_error(
          "headscope: the state holds circuits; call set_probe before load_state_dict");
    tracker_->load(state.tracker);
  }
  specialisation_.load(state.specialisation);
  trajectories_.clear();
  for (const auto& [id, points] : state.trajectories) {
    Trajectory& trajectory = trajectories_.try_emplace(id, options_.integral).first->second;
    for (const TrajectoryPoint& point : points) trajectory.add(point);
  }
  probe_heads_ = std::move(state.probe_heads);
  shapes_ = std::move(state.shapes);
  events_ = std::move(state.events);
  pending_events_ = std::move(state.pending_events);
  ablations_ = std::move(state.ablations);
  pending_ablations_ = std::move(state.pending_ablations);
  calibrations_ = std::move(state.calibrations);
  last_train_.reset();
  last_probe_.reset();
  if (!state.last_probe_heads.empty()) {
    // Controls of the next verification are drawn from these.
    Snapshot snapshot;
    snapshot.source = Source::kProbe;
    snapshot.segment = state.segment + 1;
    snapshot.integral_axis = state.integral_axis;
    if (plan_) {
      snapshot.context = plan_->context;
      snapshot.controls = to_string(plan_->controls);
    }
    for (const Pattern& pattern : patterns_) snapshot.patterns.push_back(pattern.name);
    snapshot.heads = std::move(state.last_probe_heads);
    last_probe_ = std::make_shared<const Snapshot>(std::move(snapshot));
  }
  segment_ = state.segment + 1;
  segment_start_ = next_step;
}

}  // namespace headscope
