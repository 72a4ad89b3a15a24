#pragma once

#include <string>
#include <vector>

#include "headscope/built_in_sinks.h"

namespace headscope::exporter {

/// The parts of a snapshot that the history keeps as JSON (docs/history.md). Doubles keep their
/// value to the last bit; what JSON has no number for is the string "NaN", "Infinity" or
/// "-Infinity". Reading throws std::runtime_error that says what is wrong with the text.
std::string to_json(const Event& event);
std::string to_json(const AblationReport& report);
std::string to_json(const NullCalibration& calibration);
std::string to_json(const std::vector<CircuitReading>& circuits);
std::string to_json(const Health& health);
std::string to_json(const std::vector<std::string>& names);

Event event_from_json(const std::string& text);
AblationReport ablation_from_json(const std::string& text);
NullCalibration calibration_from_json(const std::string& text);
std::vector<CircuitReading> circuits_from_json(const std::string& text);
Health health_from_json(const std::string& text);
std::vector<std::string> names_from_json(const std::string& text);

}  // namespace headscope::exporter
