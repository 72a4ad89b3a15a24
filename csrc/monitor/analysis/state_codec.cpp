#include "csrc/monitor/analysis/state_codec.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "headscope/fields.h"

namespace headscope {

using nlohmann::json;

namespace {

constexpr int kVersion = 2;

}  // namespace

void to_json(json& out, const HeadId& id) { out = json::array({id.layer, id.head}); }
void from_json(const json& in, HeadId& id) {
  id = {in.at(0).get<int32_t>(), in.at(1).get<int32_t>()};
}

void to_json(json& out, const LayerShape& shape) { out = json::array({shape.heads, shape.width}); }
void from_json(const json& in, LayerShape& shape) {
  shape = {in.at(0).get<int64_t>(), in.at(1).get<int64_t>()};
}

void to_json(json& out, const TrajectoryPoint& point) {
  out = json::array({point.step, point.tokens, point.participation_ratio});
}
void from_json(const json& in, TrajectoryPoint& point) {
  point = {in.at(0).get<int64_t>(), in.at(1).get<double>(), in.at(2).get<double>()};
}

namespace {

template <typename Record>
json object_of(const Record& record) {
  json object = json::object();
  for_each_field<Record>(
      [&](const auto& field) { object[std::string(field.name)] = record.*field.member; });
  return object;
}

template <typename Record>
void read_object(const json& in, Record& record) {
  for_each_field<Record>(
      [&](const auto& field) { in.at(std::string(field.name)).get_to(record.*field.member); });
}

constexpr auto kHeadSlots = by_slot(kHeadFigures);
constexpr auto kPatternSlots = by_slot(kPatternFigures);

/// The figures of a table in the order of its slots.
template <typename Record, size_t n>
json figure_list(const Record& record, const std::array<Figure<Record>, n>& figures) {
  json list = json::array();
  for (const Figure<Record>& figure : figures) list.push_back(record.*figure.member);
  return list;
}

/// A state saved before a figure was added has a shorter list; the figure is NaN then.
template <typename Record, size_t n>
void read_figures(const json& in, const std::array<Figure<Record>, n>& figures, Record& record) {
  for (const Figure<Record>& figure : figures) {
    record.*figure.member =
        figure.slot < in.size() ? in.at(figure.slot).template get<double>() : kNaN;
  }
}

}  // namespace

void to_json(json& out, const Event& event) { out = object_of(event); }
void from_json(const json& in, Event& event) { read_object(in, event); }

void to_json(json& out, const AblationReport& report) { out = object_of(report); }
void from_json(const json& in, AblationReport& report) { read_object(in, report); }

void to_json(json& out, const NullCalibration& null) { out = object_of(null); }
void from_json(const json& in, NullCalibration& null) { read_object(in, null); }

void to_json(json& out, const PatternReading& r) { out = figure_list(r, kPatternSlots); }
void from_json(const json& in, PatternReading& r) { read_figures(in, kPatternSlots, r); }

void to_json(json& out, const HeadReading& r) {
  out = {{"id", r.id},
         {"figures", figure_list(r, kHeadSlots)},
         {"patterns", r.patterns},
         {"best_pattern", r.best_pattern},
         {"samples", r.samples},
         {"finite", r.finite},
         {"specialising", r.specialising}};
}
void from_json(const json& in, HeadReading& r) {
  in.at("id").get_to(r.id);
  read_figures(in.at("figures"), kHeadSlots, r);
  in.at("patterns").get_to(r.patterns);
  in.at("best_pattern").get_to(r.best_pattern);
  in.at("samples").get_to(r.samples);
  in.at("finite").get_to(r.finite);
  in.at("specialising").get_to(r.specialising);
}

std::string encode(const AnalysisState& state) {
  json trajectories = json::array();
  for (const auto& [id, points] : state.trajectories)
    trajectories.push_back({{"id", id}, {"points", points}});
  const auto binary = [](const std::string& bytes) {
    return json::binary(std::vector<uint8_t>(bytes.begin(), bytes.end()));
  };
  const json out = {{"version", kVersion},
                    {"segment", state.segment},
                    {"integral_axis", state.integral_axis},
                    {"probe_definition", state.probe_definition},
                    {"probe_heads", state.probe_heads},
                    {"shapes", state.shapes},
                    {"trajectories", trajectories},
                    {"tracker", binary(state.tracker)},
                    {"specialisation", binary(state.specialisation)},
                    {"events", state.events},
                    {"pending_events", state.pending_events},
                    {"ablations", state.ablations},
                    {"pending_ablations", state.pending_ablations},
                    {"pending_calibrations", state.calibrations.pending},
                    {"recall_thresholds", state.calibrations.recall_thresholds},
                    {"last_probe_heads", state.last_probe_heads}};
  const std::vector<uint8_t> bytes = json::to_cbor(out);
  return {bytes.begin(), bytes.end()};
}

AnalysisState decode(const std::string& bytes) {
  try {
    const json in = json::from_cbor(bytes);
    const int version = in.at("version").get<int>();
    if (version != kVersion) {
      throw std::runtime_error("version " + std::to_string(version) +
                               ", this build reads version " + std::to_string(kVersion));
    }
    const auto text = [&](const char* key) {
      const auto& binary = in.at(key).get_binary();
      return std::string(binary.begin(), binary.end());
    };
    AnalysisState state;
    in.at("segment").get_to(state.segment);
    in.at("integral_axis").get_to(state.integral_axis);
    in.at("probe_definition").get_to(state.probe_definition);
    in.at("probe_heads").get_to(state.probe_heads);
    in.at("shapes").get_to(state.shapes);
    for (const json& entry : in.at("trajectories")) {
      state.trajectories[entry.at("id").get<HeadId>()] =
          entry.at("points").get<std::vector<TrajectoryPoint>>();
    }
    state.tracker = text("tracker");
    state.specialisation = text("specialisation");
    in.at("events").get_to(state.events);
    in.at("pending_events").get_to(state.pending_events);
    in.at("ablations").get_to(state.ablations);
    in.at("pending_ablations").get_to(state.pending_ablations);
    in.at("pending_calibrations").get_to(state.calibrations.pending);
    in.at("recall_thresholds").get_to(state.calibrations.recall_thresholds);
    in.at("last_probe_heads").get_to(state.last_probe_heads);
    return state;
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("headscope: these bytes are no monitor state: ") +
                             error.what());
  }
}

std::string encode(const Verification& verification) {
  const AblationTrial& trial = verification.trial;
  const AblationLosses& losses = trial.losses;
  const json out = {
      {"pattern", verification.pattern},     {"metric", verification.metric},
      {"attempt", verification.attempt},     {"heads", trial.heads},
      {"control_sets", trial.controls.sets}, {"all_that_exist", trial.controls.all_that_exist},
      {"relaxed", trial.controls.relaxed},   {"short_layers", trial.controls.short_layers},
      {"label_sets", trial.labels.sets},     {"label_sets_exist", trial.labels.exist},
      {"level", trial.test.level},           {"first_look", trial.test.first},
      {"last_look", trial.test.last},        {"exhaustive", trial.test.exhaustive},
      {"whole_layers", trial.whole_layers},  {"labelled_examples", trial.labelled_examples},
      {"has_effect", trial.has_effect},      {"beats_controls", trial.beats_controls},
      {"baseline", losses.baseline},         {"ablated", losses.ablated},
      {"controls", losses.controls},         {"labelled", losses.labelled},
      {"upper_bound", losses.upper_bound},   {"single_heads", losses.single_heads},
  };
  const std::vector<uint8_t> bytes = json::to_cbor(out);
  return {bytes.begin(), bytes.end()};
}

Verification decode_verification(const std::string& bytes) {
  try {
    const json in = json::from_cbor(bytes);
    Verification verification;
    AblationTrial& trial = verification.trial;
    AblationLosses& losses = trial.losses;
    in.at("pattern").get_to(verification.pattern);
    in.at("metric").get_to(verification.metric);
    in.at("attempt").get_to(verification.attempt);
    in.at("heads").get_to(trial.heads);
    in.at("control_sets").get_to(trial.controls.sets);
    in.at("all_that_exist").get_to(trial.controls.all_that_exist);
    in.at("relaxed").get_to(trial.controls.relaxed);
    in.at("short_layers").get_to(trial.controls.short_layers);
    in.at("label_sets").get_to(trial.labels.sets);
    in.at("label_sets_exist").get_to(trial.labels.exist);
    in.at("level").get_to(trial.test.level);
    in.at("first_look").get_to(trial.test.first);
    in.at("last_look").get_to(trial.test.last);
    in.at("exhaustive").get_to(trial.test.exhaustive);
    in.at("whole_layers").get_to(trial.whole_layers);
    in.at("labelled_examples").get_to(trial.labelled_examples);
    in.at("has_effect").get_to(trial.has_effect);
    in.at("beats_controls").get_to(trial.beats_controls);
    in.at("baseline").get_to(losses.baseline);
    in.at("ablated").get_to(losses.ablated);
    in.at("controls").get_to(losses.controls);
    in.at("labelled").get_to(losses.labelled);
    in.at("upper_bound").get_to(losses.upper_bound);
    in.at("single_heads").get_to(losses.single_heads);
    if (losses.controls.size() > trial.controls.sets.size() ||
        losses.labelled.size() > trial.labels.sets.size() ||
        trial.test.last > std::ssize(trial.labels.sets))
      throw std::runtime_error("more losses than passes");
    return verification;
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("headscope: these bytes are no verification: ") +
                             error.what());
  }
}

}  // namespace headscope
