#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "plugin/cli/compare.h"

namespace headscope::cli {
namespace {

using Row = std::vector<std::string>;

/// Columns as wide as their longest text, two blanks apart.
std::string aligned(const std::vector<Row>& rows, const std::string& indent) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = indent;
    for (size_t i = 0; i < row.size(); ++i)
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string digits(double value, const char* format) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

/// A figure, "-" where there is none.
std::string figure(const ordered_json& value, const char* format = "%.4g") {
  if (value.is_null()) return "-";
  const double number = value.get<double>();
  return std::isnan(number) ? "-" : digits(number, format);
}

/// Tokens or steps: whole numbers as they are.
std::string count(const ordered_json& value) { return figure(value, "%.10g"); }

std::string percent(const ordered_json& share) {
  return digits(100 * share.get<double>(), "%.3g") + " %";
}

std::string head_names(const ordered_json& heads) {
  std::string text;
  for (const auto& head : heads)
    text += (text.empty() ? "" : " ") + std::to_string(head[0].get<int>()) + "." +
            std::to_string(head[1].get<int>());
  return text.empty() ? "-" : text;
}

std::string numbers(const ordered_json& list, const char* between) {
  std::string text;
  for (const auto& number : list)
    text += (text.empty() ? "" : between) + std::to_string(number.get<int64_t>());
  return text;
}

/// "784384 (step 766)", the step alone where tokens are not known.
std::string moment(const ordered_json& moment) {
  if (moment.is_null()) return "-";
  const std::string step = "step " + std::to_string(moment["step"].get<int64_t>());
  const std::string tokens = count(moment["tokens"]);
  return tokens == "-" ? step : tokens + " (" + step + ")";
}

std::string text_of(const ordered_json& value) { return value.get<std::string>(); }
std::string number_of(const ordered_json& value) { return std::to_string(value.get<int64_t>()); }

std::string head_of_answer(const ordered_json& comparison) {
  std::string text = comparison["differences"].empty() ? "Definition of all runs\n"
                                                       : "Definition of the first run\n";
  std::vector<Row> rows;
  for (const auto& [what, value] : comparison["definition"].items())
    rows.push_back({what, text_of(value)});
  text += aligned(rows, "  ") + '\n';
  for (const auto& difference : comparison["differences"])
    text += "Not the same: " + text_of(difference) + '\n';
  if (!comparison["differences"].empty()) text += '\n';
  for (const char* kind : {"runs", "references"}) {
    if (comparison[kind].empty()) continue;
    rows = {{kind == std::string("runs") ? "run" : "reference", "name", "directory", "probes",
             "last probe: tokens"}};
    for (const auto& run : comparison[kind])
      rows.push_back({number_of(run["run"]), text_of(run["name"]), text_of(run["directory"]),
                      number_of(run["probes"]), moment(run["end"])});
    text += aligned(rows, "") + '\n';
  }
  if (comparison["integrals"].empty()) return text;
  text += "Rank correlation (Spearman) of the PR integrals over heads\n";
  rows.clear();
  for (const auto& pair : comparison["integrals"])
    rows.push_back({"runs " + numbers(pair["runs"], "-"), figure(pair["spearman"]),
                    number_of(pair["heads"]) + " heads"});
  return text + aligned(rows, "  ") + '\n';
}

std::string circuits_text(const ordered_json& pattern) {
  std::vector<Row> rows = {
      {"run", "state", "emerging: tokens", "formed: tokens", "verified: tokens", "size", "heads"}};
  for (const auto& circuit : pattern["circuits"])
    rows.push_back({number_of(circuit["run"]), text_of(circuit["state"]),
                    moment(circuit["emerging"]), moment(circuit["formed"]),
                    moment(circuit["verified"]),
                    number_of(circuit["size"]) + " of " + number_of(circuit["of_heads"]) + ", " +
                        percent(circuit["share"]),
                    head_names(circuit["heads"])});
  return aligned(rows, "  ");
}

std::string overlap_text(const ordered_json& pattern) {
  std::vector<Row> rows;
  for (const auto& pair : pattern["overlap"])
    rows.push_back({"runs " + numbers(pair["runs"], "-"),
                    pair["both_empty"].get<bool>()
                        ? "no circuit in either"
                        : figure(pair["jaccard"]) + ", by chance " + figure(pair["by_chance"])});
  if (rows.empty()) return {};
  std::string text = "  Jaccard of the final circuits\n" + aligned(rows, "    ");
  std::string shared;
  for (const auto& entry : pattern["shared"])
    shared += (shared.empty() ? "" : ", ") + head_names(ordered_json::array({entry["head"]})) +
              " (runs " + numbers(entry["runs"], " ") + ")";
  return text + "    shared: " + (shared.empty() ? "none" : shared) + '\n';
}

std::string shifts_text(const ordered_json& pattern) {
  std::vector<Row> rows;
  for (const auto& shift : pattern["shifts"])
    rows.push_back({"run " + number_of(shift["run"]), "from " + moment(shift["shift"]),
                    text_of(shift["reading"]), "Jaccard " + figure(shift["jaccard"]),
                    "lost " + head_names(shift["lost"]), "gained " + head_names(shift["gained"])});
  return rows.empty() ? "" : "  Circuit before and after new data\n" + aligned(rows, "    ");
}

std::string recall_text(const ordered_json& pattern) {
  if (pattern["recall"].empty()) return {};
  std::vector<Row> rows = {{"run"}};
  for (const auto& point : pattern["recall"].front()["recall"])
    rows.front().push_back("at " + percent(point["fraction"]));
  for (const auto& run : pattern["recall"]) {
    Row& row = rows.emplace_back(Row{number_of(run["run"])});
    for (const auto& point : run["recall"])
      row.push_back(figure(point["emerging_or_formed"], "%.2g") + " / " +
                    figure(point["formed"], "%.2g") +
                    (point["screened"].is_null() ? "" : " / " + figure(point["screened"], "%.2g")));
  }
  const auto has_screen = [](const ordered_json& run) {
    return !run["recall"].back()["screened"].is_null();
  };
  const bool screened = std::any_of(pattern["recall"].begin(), pattern["recall"].end(), has_screen);
  return "  Share of the final heads that were emerging or formed / formed" +
         std::string(screened ? " / above noise in the run's own screen" : "") +
         ", by share of the run\n" + aligned(rows, "    ");
}

std::string ablations_text(const ordered_json& pattern) {
  if (pattern["ablations"].empty()) return {};
  std::vector<Row> rows = {{"run", "metric", "at", "verdict", "effect", "controls' mean",
                            "difference", "examples", "heads"}};
  for (const auto& report : pattern["ablations"])
    rows.push_back({number_of(report["run"]),
                    text_of(report["metric"]) + (report["gate"].get<bool>() ? "" : " (beside)"),
                    "step " + number_of(report["step"]), text_of(report["verdict"]),
                    figure(report["effect"]), figure(report["control_mean"]),
                    figure(report["difference_low"]) + " .. " + figure(report["difference_high"]),
                    number_of(report["examples"]), head_names(report["heads"])});
  return "  Last ablations, nats\n" + aligned(rows, "    ");
}

std::string standing_text(const ordered_json& run, const std::string& axis) {
  const std::string standing = text_of(run["standing"]);
  const std::string date = count(run[axis]), after = count(run["after"]),
                    not_by = count(run["not_by"]), ratio = figure(run["ratio"]);
  if (standing == "late")
    return "late: after " + after + ", by " + date + "; at least " + ratio +
           " times the band's end";
  if (standing == "early")
    return "early: by " + date + ", the band begins at least " + ratio + " times later";
  if (standing == "absent")
    return "absent at " + not_by + ", " + ratio +
           " times the band's end, where the references had it";
  if (standing == "not due yet") return "not due yet at " + not_by;
  return standing + (date == "-" ? "" : ": " + date);
}

std::string bands_text(const ordered_json& pattern) {
  if (!pattern.contains("bands")) return {};
  std::string text;
  for (const auto& band : pattern["bands"]) {
    const std::string axis = text_of(band["axis"]);
    text += "  Band of " + axis + " at " + text_of(band["milestone"]) + ": ";
    if (number_of(band["dated"]) == "0") {
      text += "none of " + number_of(band["references"]) + " references came to it\n";
      continue;
    }
    text += count(band["low"]) + " .. " + count(band["high"]) + ", of " + number_of(band["dated"]) +
            " of " + number_of(band["references"]) + " references\n";
    if (band.contains("note"))
      text += "    (" + text_of(band["note"]) + " " + figure(band["factor"]) + ")\n";
    std::vector<Row> rows;
    for (const auto& run : band["runs"])
      rows.push_back({"run " + number_of(run["run"]), standing_text(run, axis)});
    text += aligned(rows, "    ");
  }
  return text;
}

std::string prior_text(const ordered_json& prior) {
  std::string text = "Induction by a " + text_of(prior["name"]) + "\n  " +
                     text_of(prior["formula"]) + " = " + count(prior["tokens"]) + " for batch " +
                     count(prior["batch"]) + ", context " + count(prior["context"]) + '\n';
  std::vector<Row> rows;
  for (const auto& run : prior["runs"]) {
    const std::string measured = count(run["formed_tokens"]);
    rows.push_back({"run " + number_of(run["run"]),
                    measured == "-"
                        ? "not formed by " + count(run["end_tokens"])
                        : "formed at " + measured + ", " + figure(run["ratio"]) + " of the prior"});
  }
  return text + aligned(rows, "  ");
}

}  // namespace

std::string comparison_text(const ordered_json& comparison) {
  std::string text = head_of_answer(comparison);
  for (const auto& pattern : comparison["patterns"])
    text += text_of(pattern["pattern"]) + '\n' + circuits_text(pattern) + overlap_text(pattern) +
            shifts_text(pattern) + recall_text(pattern) + ablations_text(pattern) +
            bands_text(pattern) + '\n';
  if (comparison.contains("prior")) text += prior_text(comparison["prior"]);
  return text;
}

}  // namespace headscope::cli
