#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "csrc/circuits/text.h"
#include "csrc/circuits/tracker_impl.h"

namespace headscope {

using namespace circuits;
using enum CircuitState;

namespace {

Answer any_of(const std::vector<HeadEvidence>& heads, Answer HeadEvidence::*question) {
  Answer any = Answer::kNo;
  for (const auto& head : heads) {
    if (head.*question == Answer::kYes) return Answer::kYes;
    if (head.*question == Answer::kUnknown) any = Answer::kUnknown;
  }
  return any;
}

void keep_earliest(Moment& earliest, const Moment& moment) {
  if (earliest.step < 0 || moment.probe < earliest.probe) earliest = moment;
}

}  // namespace

void CircuitTracker::Impl::check(const ProbeEvidence& probe) const {
  const auto fail = [](const std::string& what) {
    throw std::invalid_argument("CircuitTracker::update: " + what);
  };
  const size_t patterns = setup.patterns.size(), heads = probe.heads.size();
  const size_t known = state.head_ids.size();
  if (heads < known)
    fail(std::to_string(heads) + " heads, earlier probes had " + std::to_string(known) +
         "; a head that did not report is given as not finite");
  std::set<HeadId> seen;
  for (size_t h = 0; h < heads; ++h) {
    const HeadReading& head = probe.heads[h];
    if (!seen.insert(head.id).second) fail("head " + name_of(head.id) + " is given twice");
    if (h < known && head.id != state.head_ids[h])
      fail("head " + name_of(head.id) + " where earlier probes had " + name_of(state.head_ids[h]));
    if (head.patterns.size() != patterns)
      fail("head " + name_of(head.id) + " has " + std::to_string(head.patterns.size()) +
           " pattern readings, the tracker " + std::to_string(patterns) + " patterns");
  }
  if (!probe.nulls.empty() && probe.nulls.size() != patterns)
    fail("nulls for " + std::to_string(probe.nulls.size()) + " of " + std::to_string(patterns) +
         " patterns");
  for (const auto& nulls : probe.nulls) {
    for (const auto* test : {&nulls.margin, &nulls.mass}) {
      if (!*test) continue;
      for (const size_t size : {(*test)->z.size(), (*test)->excess.size(), (*test)->beats.size()})
        if (size != heads)
          fail("a null test of " + std::to_string(size) + " heads for " + std::to_string(heads));
    }
  }
}

void CircuitTracker::Impl::begin(const ProbeEvidence& probe) {
  // Heads that report for the first time join behind the known ones, dormant.
  for (const auto& head : probe.heads.subspan(state.head_ids.size()))
    state.head_ids.push_back(head.id);
  for (auto& circuit : state.circuits) circuit.heads.resize(probe.heads.size());
  const bool goes_back = state.probes > 0 && probe.step <= state.now.step;
  const bool restarts = state.probes > 0 && (goes_back || probe.new_stretch);
  if (restarts) {
    ++state.stretch;
    for (auto& circuit : state.circuits) {
      for (auto& head : circuit.heads) head.break_streaks();
      if (!circuit.has_formed()) circuit.margin_run = circuit.mass_run = {};
    }
  }
  ++state.probes;
  state.now = {probe.step, probe.tokens, restarts ? -1 : state.now.step, state.probes};
}

std::vector<size_t> CircuitTracker::Impl::numbers_in(const CircuitLife& circuit,
                                                     CircuitState wanted) const {
  std::vector<size_t> numbers;
  for (size_t h = 0; h < circuit.heads.size(); ++h)
    if (circuit.heads[h].state == wanted) numbers.push_back(h);
  return numbers;
}

std::vector<HeadId> CircuitTracker::Impl::heads_in(const CircuitLife& circuit,
                                                   CircuitState wanted) const {
  std::vector<HeadId> ids;
  for (const size_t h : numbers_in(circuit, wanted)) ids.push_back(state.head_ids[h]);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<HeadId> CircuitTracker::Impl::members(const CircuitLife& circuit) const {
  return heads_in(circuit, circuit.has_formed() ? kFormed : kEmerging);
}

Event CircuitTracker::Impl::event_of(const ProbeEvidence& probe, size_t pattern,
                                     CircuitState entered, const std::vector<size_t>& heads,
                                     const Moment& first) const {
  Event event;
  event.step = probe.step;
  event.tokens = probe.tokens;
  event.wall_time = probe.wall_time;
  event.previous_probe_step = state.now.after;
  event.kind = to_string(entered);
  event.pattern = setup.patterns[pattern].name;
  event.rule = rule_text(setup, probe, pattern, entered);
  const auto selectivity = [&](size_t h) { return probe.heads[h].patterns[pattern].selectivity; };
  size_t best = heads.front();
  for (const size_t h : heads) {
    event.heads.push_back(state.head_ids[h]);
    if (selectivity(h) > selectivity(best) || std::isnan(selectivity(best))) best = h;
  }
  std::sort(event.heads.begin(), event.heads.end());
  event.figures = figures_of(setup, state, probe, pattern, best);
  event.figures["first_step"] = static_cast<double>(first.step);
  event.figures["first_step_after"] = static_cast<double>(first.after);
  return event;
}

bool CircuitTracker::Impl::convert(const ProbeEvidence& probe, size_t pattern, size_t head,
                                   Event& event) const {
  double best = kNaN;
  std::optional<size_t> other;
  for (size_t p = 0; p < setup.patterns.size(); ++p) {
    const HeadLife& there = state.circuits[p].heads[head];
    if (p == pattern || there.state != kFormed) continue;
    // One that was formed there all along has not become it.
    if (there.formed.probe <= state.circuits[pattern].heads[head].formed.probe) continue;
    const double selectivity = probe.heads[head].patterns[p].selectivity;
    if (other && !(selectivity > best)) continue;
    other = p;
    best = selectivity;
  }
  if (!other) return false;
  event.kind = "converted";
  event.figures["other_pattern"] = static_cast<double>(*other);
  if (!std::isnan(best)) event.figures["other_selectivity"] = best;
  event.rule += "; the head is formed in " + setup.patterns[*other].name;
  return true;
}

void CircuitTracker::Impl::enter(const ProbeEvidence& probe, size_t pattern,
                                 const std::vector<HeadEvidence>& evidence, Changes& changes,
                                 std::vector<Event>& events) {
  CircuitLife& circuit = state.circuits[pattern];
  circuit.best_selectivity = kNaN;
  for (size_t h = 0; h < evidence.size(); ++h) {
    circuit.best_selectivity =
        std::fmax(circuit.best_selectivity, probe.heads[h].patterns[pattern].selectivity);
    for (const auto& change :
         circuit.heads[h].enter(evidence[h], state.now, setup.rules.probes_in_a_row)) {
      keep_earliest(change.state == kFormed ? changes.formed : changes.emerging, change.first);
      events.push_back(event_of(probe, pattern, change.state, {h}, change.first));
      events.back().head_level = true;
    }
  }
  const bool tested = !probe.nulls.empty() && probe.nulls[pattern].margin.has_value();
  // A probe whose answer was clear early has no critical value of its own: the last one stands.
  if (tested && !std::isnan(probe.nulls[pattern].margin->critical_z))
    circuit.critical_margin_z = probe.nulls[pattern].margin->critical_z;
  if (circuit.has_formed()) return;
  circuit.margin_run.count(any_of(evidence, &HeadEvidence::margin), state.now);
  circuit.mass_run.count(any_of(evidence, &HeadEvidence::mass), state.now);
}

void CircuitTracker::Impl::leave(const ProbeEvidence& probe, size_t pattern,
                                 const std::vector<HeadEvidence>& evidence, Changes& changes,
                                 std::vector<Event>& events) {
  for (size_t h = 0; h < evidence.size(); ++h) {
    for (const auto& change : state.circuits[pattern].heads[h].leave(evidence[h], state.now,
                                                                     setup.rules.probes_in_a_row)) {
      Event event = event_of(probe, pattern, change.state, {h}, change.first);
      event.head_level = true;
      if (change.state == kLost && !convert(probe, pattern, h, event))
        changes.all_converted = false;
      (change.state == kLost ? changes.lost : changes.faded).push_back(h);
      events.push_back(std::move(event));
    }
  }
}

void CircuitTracker::Impl::note_heads(CircuitLife& circuit) {
  auto formed = heads_in(circuit, kFormed);
  if (formed == circuit.formed_heads) return;
  circuit.formed_heads = std::move(formed);
  circuit.changed_at_probe = state.probes;
}

void CircuitTracker::Impl::reopen(const ProbeEvidence& probe, size_t pattern,
                                  const std::vector<size_t>& formed, std::vector<Event>& events) {
  CircuitLife& circuit = state.circuits[pattern];
  if (circuit.judged_heads.empty()) return;
  const auto judged = std::count_if(formed.begin(), formed.end(), [&](size_t h) {
    return std::binary_search(circuit.judged_heads.begin(), circuit.judged_heads.end(),
                              state.head_ids[h]);
  });
  if (2 * judged >= std::ssize(formed)) return;
  circuit.judged_heads.clear();
  circuit.tried_heads.clear();
  circuit.verified = {};
  if (circuit.state == kFormed) return;
  circuit.state = kFormed;
  events.push_back(event_of(probe, pattern, kFormed, formed, circuit.formed));
  events.back().rule += "; most of its heads were not in the last verdict";
}

void CircuitTracker::Impl::settle(const ProbeEvidence& probe, size_t pattern,
                                  const Changes& changes, std::vector<Event>& events) {
  CircuitLife& circuit = state.circuits[pattern];
  const auto emerging = numbers_in(circuit, kEmerging);
  const auto formed = numbers_in(circuit, kFormed);
  if (circuit.has_formed()) {
    if (!formed.empty()) {
      note_heads(circuit);
      reopen(probe, pattern, formed, events);
      return;
    }
    events.push_back(event_of(probe, pattern, kLost, changes.lost, state.now));
    if (changes.all_converted) {
      events.back().kind = "converted";
      events.back().rule += "; each head that left at this probe is formed in another pattern";
    }
    circuit.state = kLost;
    circuit.tried_heads.clear();
    circuit.judged_heads.clear();
    circuit.attempts_before += circuit.attempts;
    circuit.attempts = 0;
    circuit.level_spent = 0;
    circuit.formed_heads.clear();
    circuit.formed_at_probe = circuit.changed_at_probe = -1;
    circuit.margin_run = circuit.mass_run = {};
  }
  const bool emerges = changes.emerging.step >= 0 || !emerging.empty();
  if (circuit.state != kEmerging && emerges) {
    circuit.emerging = changes.emerging.step >= 0 ? changes.emerging : state.now;
    circuit.formed = circuit.verified = {};
    circuit.state = kEmerging;
    events.push_back(event_of(probe, pattern, kEmerging, emerging.empty() ? formed : emerging,
                              circuit.emerging));
  }
  if (!formed.empty()) {
    if (circuit.state != kEmerging) circuit.emerging = {};
    circuit.formed = changes.formed;
    circuit.verified = {};
    circuit.state = kFormed;
    circuit.formed_at_probe = state.probes;
    note_heads(circuit);
    events.push_back(event_of(probe, pattern, kFormed, formed, circuit.formed));
  } else if (circuit.state == kEmerging && emerging.empty()) {
    circuit.emerging = {};
    circuit.state = kDormant;
    events.push_back(event_of(probe, pattern, kDormant, changes.faded, state.now));
  }
}

std::vector<Event> CircuitTracker::Impl::take(const ProbeEvidence& probe) {
  begin(probe);
  const size_t patterns = setup.patterns.size();
  std::vector<Event> events;
  std::vector<std::vector<HeadEvidence>> evidence(patterns);
  std::vector<Changes> changes(patterns);
  for (size_t p = 0; p < patterns; ++p) {
    for (size_t h = 0; h < probe.heads.size(); ++h)
      evidence[p].push_back(weigh(setup, probe, p, h));
    enter(probe, p, evidence[p], changes[p], events);
  }
  // Everything enters before anything leaves: a head that is lost here and formed there was
  // converted.
  for (size_t p = 0; p < patterns; ++p) leave(probe, p, evidence[p], changes[p], events);
  for (size_t p = 0; p < patterns; ++p) settle(probe, p, changes[p], events);
  return events;
}

}  // namespace headscope
