#include <charconv>
#include <cmath>

#include "headscope/built_in_sinks.h"
#include "headscope/fields.h"
#include "plugin/cli/commands.h"
#include "plugin/cli/csv.h"
#include "plugin/cli/json_text.h"
#include "plugin/cli/run_order.h"

namespace headscope::cli {
namespace {

/// One line of the table: a head's reading on one pattern, or a head without patterns.
struct Line {
  const Snapshot& snapshot;
  const HeadReading& head;
  const std::string& pattern;
  const PatternReading& figures;
  const std::string& phase;        // number of the stretch; empty where the run has one only
  double formed_threshold = kNaN;  // of the probe's circuits
  double recall_threshold = kNaN;  // of the last screen of the probe's rows
};

/// Selectivity that `formed` needs on a probe: it goes by what the query sees, which a window makes
/// less than the row. On the training batch no state changes.
double threshold_of(const Snapshot& snapshot, size_t pattern) {
  if (snapshot.source != Source::kProbe || pattern >= snapshot.circuits.size()) return kNaN;
  return snapshot.circuits[pattern].formed_threshold;
}

double recall_threshold_of(const Snapshot& snapshot, size_t pattern) {
  if (snapshot.source != Source::kProbe || pattern >= snapshot.circuits.size()) return kNaN;
  return snapshot.circuits[pattern].recall_threshold;
}

template <typename Use>
void for_each_line(const RunHistory& run, const std::string& source, const Use& use) {
  static const std::string kNoPattern;
  static const PatternReading kNoFigures;
  const auto placed = in_order(run);
  const bool several = !placed.empty() && placed.back().stretch > 0;
  for (const auto& [snapshot, stretch] : placed) {
    if (source != "all" && source != to_string(snapshot->source)) continue;
    const std::string phase = several ? std::to_string(stretch + 1) : "";
    for (const auto& head : snapshot->heads) {
      if (head.patterns.empty()) use(Line{*snapshot, head, kNoPattern, kNoFigures, phase});
      for (size_t p = 0; p < head.patterns.size(); ++p) {
        const bool named = p < snapshot->patterns.size();
        use(Line{*snapshot, head, named ? snapshot->patterns[p] : kNoPattern, head.patterns[p],
                 phase, threshold_of(*snapshot, p), recall_threshold_of(*snapshot, p)});
      }
    }
  }
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n#") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? "\"\"" : std::string(1, c == '\n' ? ' ' : c);
  return result + "\"";
}

/// The shortest text that reads back the same; nothing for NaN.
std::string field(double value) {
  if (std::isnan(value)) return {};
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string as_csv(const RunHistory& run, const std::string& source) {
  std::string text =
      "step,tokens,source,context,layer,head,pattern,selectivity,mass,margin,margin_z,mass_z,"
      "participation_ratio,pr_integral,formed_threshold,recall_threshold,phase\n";
  for_each_line(run, source, [&](const Line& line) {
    text += std::to_string(line.snapshot.step) + ',' + field(line.snapshot.tokens) + ',' +
            to_string(line.snapshot.source) + ',' + std::to_string(line.snapshot.context) + ',' +
            std::to_string(line.head.id.layer) + ',' + std::to_string(line.head.id.head) + ',' +
            quoted(line.pattern);
    for (const double value :
         {line.figures.selectivity, line.figures.mass, line.figures.margin, line.figures.margin_z,
          line.figures.mass_z, line.head.participation_ratio, line.head.pr_integral,
          line.formed_threshold, line.recall_threshold})
      text += ',' + field(value);
    text += ',' + line.phase + '\n';
  });
  return text;
}

ordered_json calibration_to_json(const NullCalibration& null) {
  ordered_json object;
  for_each_field<NullCalibration>(
      [&](const auto& field) { object[std::string(field.name)] = null.*field.member; });
  return object;
}

std::string as_json(const RunHistory& run, const std::string& source) {
  ordered_json answer;
  answer["facts"] = run.facts;
  answer["readings"] = ordered_json::array();
  for_each_line(run, source, [&](const Line& line) {
    answer["readings"].push_back({{"step", line.snapshot.step},
                                  {"tokens", line.snapshot.tokens},
                                  {"source", to_string(line.snapshot.source)},
                                  {"context", line.snapshot.context},
                                  {"layer", line.head.id.layer},
                                  {"head", line.head.id.head},
                                  {"pattern", line.pattern},
                                  {"selectivity", line.figures.selectivity},
                                  {"mass", line.figures.mass},
                                  {"margin", line.figures.margin},
                                  {"margin_z", line.figures.margin_z},
                                  {"mass_z", line.figures.mass_z},
                                  {"participation_ratio", line.head.participation_ratio},
                                  {"pr_integral", line.head.pr_integral},
                                  {"formed_threshold", line.formed_threshold},
                                  {"recall_threshold", line.recall_threshold},
                                  {"phase", line.phase}});
  });
  answer["events"] = ordered_json::array();
  answer["ablations"] = ordered_json::array();
  answer["calibrations"] = ordered_json::array();
  answer["circuits"] = ordered_json::array();
  for (const auto& snapshot : run.snapshots) {
    for (const auto& event : snapshot->events) answer["events"].push_back(to_json(event));
    for (const auto& report : snapshot->ablations)
      answer["ablations"].push_back(to_json(report, Lists::kWhole));
    for (const auto& null : snapshot->calibrations)
      answer["calibrations"].push_back(calibration_to_json(null));
    if (snapshot->circuits.empty()) continue;
    answer["circuits"] = ordered_json::array();  // as of the last snapshot that has them
    for (const auto& circuit : snapshot->circuits) answer["circuits"].push_back(to_json(circuit));
  }
  return to_text(answer);
}

}  // namespace

std::string history(const HistoryArguments& arguments) {
  const RunHistory run = read_history(arguments.run_dir);
  return arguments.json ? as_json(run, arguments.source) : as_csv(run, arguments.source);
}

}  // namespace headscope::cli
