#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <stdexcept>
#include <string>

#include "headscope/screen_runner.h"

namespace headscope {
namespace {

constexpr const char* kBatchNames[] = {
    "planted", "duplicate_token", "indirect_object", "natural_induction",
    "text",    "hard_negative",   "local_repeat",    "random"};

__attribute__((format(printf, 2, 3))) void append_printed(std::string& text, const char* format,
                                                          ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
}

std::string printed_figure(double value) {
  std::string text;
  if (std::isnan(value)) return "-";
  append_printed(text, "%.4g", value);
  return text;
}

std::string printed_heads(const std::vector<HeadId>& heads) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < heads.size() && i < kShown; ++i)
    append_printed(text, "%s%d.%d", i > 0 ? " " : "", heads[i].layer, heads[i].head);
  if (heads.size() > kShown) append_printed(text, " and %zu more", heads.size() - kShown);
  return text.empty() ? "none" : text;
}

void append_stability(std::string& text, const char* what,
                      const std::optional<ClassStability>& stability) {
  if (!stability) return;
  append_printed(text,
                 "classes over %s: %.0f %% of heads have one in all %lld, two agree on %.0f %%\n",
                 what, 100 * stability->unanimous, static_cast<long long>(stability->labelings),
                 100 * stability->pairwise);
}

}  // namespace

const char* to_string(ScreenBatch batch) {
  const auto number = static_cast<size_t>(batch);
  if (number >= std::size(kBatchNames))
    throw std::invalid_argument("headscope screen: there is no batch number " +
                                std::to_string(number));
  return kBatchNames[number];
}

ScreenBatch screen_batch_from_string(const std::string& name) {
  std::string known;
  for (size_t i = 0; i < std::size(kBatchNames); ++i) {
    if (name == kBatchNames[i]) return static_cast<ScreenBatch>(i);
    known += std::string(i > 0 ? ", " : "") + kBatchNames[i];
  }
  throw std::invalid_argument("headscope screen: there is no batch '" + name + "'; there are " +
                              known);
}

std::string to_text(const ScreenResult& result) {
  std::string text;
  append_printed(
      text,
      "%zu heads, batch %s, T = %lld, rules of %s\n\n%-16s %-17s %6s %9s %7s %7s %9s %6s  %s\n",
      result.heads.size(), result.batch.c_str(), static_cast<long long>(result.context),
      result.screen.rules.name.c_str(), "pattern", "rows", "count", "threshold", "recall", "best",
      "selective", "mass", "circuit");
  for (const ScreenedPattern& line : result.patterns) {
    append_printed(text, "%-16s %-17s %6lld %9s %7s %7s %9s %6s  ", line.pattern.c_str(),
                   line.batch.c_str(), static_cast<long long>(line.rows),
                   printed_figure(line.threshold).c_str(),
                   printed_figure(line.recall_threshold).c_str(),
                   line.best ? printed_heads({*line.best}).c_str() : "-",
                   printed_figure(line.best_reading.selectivity).c_str(),
                   printed_figure(line.best_reading.mass).c_str());
    text += printed_heads(line.members) + '\n';
  }
  const Screen& screen = result.screen;
  append_printed(text, "\n%.1f %% of heads have a class", 100 * screen.specialised);
  if (screen.top_k > 0)
    append_printed(text, "; %.1f %% have one and are among the first %lld by PR integral",
                   100 * screen.specialised_top, static_cast<long long>(screen.top_k));
  append_printed(
      text, "\nparticipation ratio above every head's on random tokens: %lld of %lld (N = %lld)\n",
      static_cast<long long>(result.ratio.above_max), static_cast<long long>(result.ratio.heads),
      static_cast<long long>(result.ratio.samples));
  append_stability(text, "query positions", result.over_positions);
  append_stability(text, "batches", result.over_batches);
  for (const ScreenedPattern& line : result.patterns)
    if (line.ablation)
      text += line.pattern + ": " + to_string(line.ablation->verdict) + ", " +
              line.ablation->reason + '\n';
  return text;
}

ReferenceProtocol reference_protocol(int64_t vocab_size, int64_t context) {
  constexpr int64_t kVocabulary = 10000;
  if (vocab_size < kVocabulary)
    throw std::invalid_argument(
        "headscope: the reference draws tokens of [100, 10000), and the "
        "vocabulary has " +
        std::to_string(vocab_size) + "; leave the reference, its digits mean nothing there");
  if (context < 16)
    throw std::invalid_argument(
        "headscope: the reference's rows have 256 tokens; at least 16 are "
        "needed, got " +
        std::to_string(context));
  ReferenceProtocol reference;
  reference.options.integral = {.axis = IntegralAxis::kLnTokensClamped1b};
  reference.options.rules = CircuitRules::reference();
  reference.probe.vocab_size = vocab_size;
  reference.probe.context = context;
  reference.probe.examples = 500;
  reference.probe.token_low = 100;
  reference.probe.token_high = kVocabulary;
  reference.probe.position_queries = 0;
  reference.probe.controls = ControlPositions::kReference50;
  reference.probe.whole_every = 1;  // every reading over the same N
  reference.screen.examples = 2000;
  reference.screen.query_positions = 1;
  reference.screen.controls = ScreenControls::kReference50;
  reference.screen.rules = ScreenRules::reference();
  reference.screen.null_draws = 500;
  reference.screen.recall_null = NullTargets::kUniform;
  return reference;
}

}  // namespace headscope
