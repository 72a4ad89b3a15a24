#include "csrc/exporter/terminal/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/exporter/common/process_bound.h"
#include "csrc/exporter/common/sanitise.h"
#include "csrc/exporter/terminal/terminal.h"

namespace headscope {
namespace exporter {
namespace {

constexpr size_t kTopHeads = 3;
constexpr size_t kEventHeads = 4;
constexpr size_t kEventFigures = 4;
constexpr double kRateWindowSeconds = 20;
constexpr double kLeastRateSeconds = 1;
constexpr double kRedrawSeconds = 0.1;
constexpr char kClearLine[] = "\r\x1b[2K";

std::string number(double value, const char* format = "%.3g") {
  if (std::isnan(value)) return "nan";  // printf may write -nan
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string with_magnitude(double value) {
  constexpr std::pair<double, const char*> kScales[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [scale, letter] : kScales) {
    if (value >= scale) return number(value / scale) + letter;
  }
  return number(value);
}

std::string name_of(const HeadId& id) {
  return std::to_string(id.layer) + "." + std::to_string(id.head);
}

/// The figures that a change of state turns on; of an unknown kind the first few.
std::vector<std::string> figures_to_show(const Event& event) {
  std::vector<std::string> wanted = {"selectivity", "threshold", "mass"};
  if (event.kind == "emerging") wanted = {"margin_z", "critical_z", "selectivity", "mass"};
  if (event.figures.contains("effect")) wanted = {"effect", "control_mean", "controls"};
  const auto missing = [&](const std::string& name) {
    const auto found = event.figures.find(name);
    return found == event.figures.end() || std::isnan(found->second);
  };
  std::erase_if(wanted, missing);
  if (!wanted.empty()) return wanted;
  for (const auto& [name, value] : event.figures) {
    if (!missing(name) && wanted.size() < kEventFigures) wanted.push_back(name);
  }
  return wanted;
}

struct TopHead {
  HeadId id;
  double selectivity;
  std::string pattern;
};

std::vector<TopHead> top_heads(const Snapshot& snapshot) {
  std::vector<TopHead> heads;
  for (const HeadReading& head : snapshot.heads) {
    std::optional<TopHead> best;
    for (size_t i = 0; i < std::min(head.patterns.size(), snapshot.patterns.size()); ++i) {
      const double selectivity = head.patterns[i].selectivity;
      if (std::isnan(selectivity) || (best && selectivity <= best->selectivity)) continue;
      best = TopHead{head.id, selectivity, snapshot.patterns[i]};
    }
    if (best) heads.push_back(*best);
  }
  std::stable_sort(heads.begin(), heads.end(), [](const TopHead& a, const TopHead& b) {
    return a.selectivity > b.selectivity;
  });
  heads.resize(std::min(heads.size(), kTopHeads));
  return heads;
}

/// Tokens a second over the last seconds, from a clock that does not jump. Probes and verifications
/// pause training for moments that a shorter stretch would show as a collapse.
class TokenRate {
 public:
  void update(double tokens, double seconds) {
    if (std::isnan(tokens)) return;
    if (!points_.empty() && tokens < points_.back().first) points_.clear();  // a replay
    points_.emplace_back(tokens, seconds);
    while (points_.size() > 2 && seconds - points_[1].second >= kRateWindowSeconds)
      points_.pop_front();
  }
  std::optional<double> per_second() const {
    if (points_.empty()) return std::nullopt;
    const double seconds = points_.back().second - points_.front().second;
    if (seconds < kLeastRateSeconds) return std::nullopt;
    return (points_.back().first - points_.front().first) / seconds;
  }

 private:
  std::deque<std::pair<double, double>> points_;  ///< (tokens, seconds)
};

class ProgressLine : public Sink {
 public:
  ProgressLine(const ProgressOptions& options, std::function<double()> clock)
      : options_(options),
        clock_(std::move(clock)),
        terminal_(options.file_descriptor),
        rewrite_(terminal_.can_rewrite()) {}

  std::string name() const override { return "progress"; }

  void publish(const std::shared_ptr<const Snapshot>& snapshot) override {
    latest_ = snapshot;
    // The probe asks the same of every head at every step; a training batch is the second best.
    const bool better =
        snapshot->source == Source::kProbe || !heads_ || heads_->source == Source::kTrain;
    if (better && !snapshot->heads.empty()) heads_ = snapshot;
    if (!snapshot->circuits.empty()) circuits_ = snapshot;
    // A training step without a loss, after others had one, has lost it.
    const bool lost = snapshot->source == Source::kTrain && loss_;
    if (!std::isnan(snapshot->loss) || lost) loss_ = snapshot->loss;
    const double now = clock_();
    rate_.update(snapshot->tokens, now);
    const bool events_shown = write_events(*snapshot);
    const double interval = rewrite_ ? kRedrawSeconds : options_.plain_interval_seconds;
    const bool due = !last_line_ || now - *last_line_ >= interval;
    stale_ = true;
    if (due || (rewrite_ && events_shown)) write_line(now);
  }

  void close() override {
    if (stale_) write_line(clock_());
    if (rewrite_ && latest_) terminal_.write("\n");
    latest_ = nullptr;
    stale_ = false;
  }

 private:
  bool write_events(const Snapshot& snapshot) {
    bool any = false;
    for (const Event& event : snapshot.events) {
      if (event.head_level || event.kind == "deferred") continue;  // no circuit's
      terminal_.write((rewrite_ ? kClearLine : "") + event_line(event) + "\n");
      any = true;
    }
    return any;
  }

  void write_line(double now) {
    std::string text = sanitise_terminal(line());
    if (rewrite_) {
      // The last column stays free: writing to it makes some terminals wrap.
      text.resize(std::min(text.size(), static_cast<size_t>(terminal_.columns() - 1)));
      terminal_.write(kClearLine + text);
    } else {
      terminal_.write(text + "\n");
    }
    last_line_ = now;
    stale_ = false;
  }

  std::string line() const {
    std::string text = "step " + std::to_string(latest_->step);
    if (options_.total_steps > 0) text += "/" + std::to_string(options_.total_steps);
    if (loss_) text += "  loss " + number(*loss_, "%.4g");
    if (rate_.per_second()) text += "  " + with_magnitude(*rate_.per_second()) + " tokens/s";
    std::string separator = "  heads ";
    for (const TopHead& head : heads_ ? top_heads(*heads_) : std::vector<TopHead>{}) {
      text += std::exchange(separator, ", ") + name_of(head.id) + " " + head.pattern + " " +
              with_magnitude(head.selectivity) + "x";
    }
    separator = "  circuits ";
    if (!circuits_) return text;
    for (const CircuitReading& circuit : circuits_->circuits) {
      if (circuit.state == CircuitState::kDormant) continue;
      text += std::exchange(separator, ", ") + circuit.pattern + " " + to_string(circuit.state);
    }
    return text;
  }

  const ProgressOptions options_;
  const std::function<double()> clock_;
  const Terminal terminal_;
  const bool rewrite_;
  std::shared_ptr<const Snapshot> latest_;    // newest
  std::shared_ptr<const Snapshot> heads_;     // newest whose heads are shown
  std::shared_ptr<const Snapshot> circuits_;  // newest that speaks of circuits
  std::optional<double> loss_;                // once told
  TokenRate rate_;
  std::optional<double> last_line_;  // when the line was written last
  bool stale_ = false;               // something came since
};

}  // namespace

std::string event_line(const Event& event) {
  std::string text = "step " + std::to_string(event.step) + "  " +
                     (event.pattern.empty() ? "" : event.pattern + " ") + event.kind;
  std::string separator = event.heads.size() == 1 ? ": head " : ": heads ";
  for (size_t i = 0; i < std::min(event.heads.size(), kEventHeads); ++i) {
    text += std::exchange(separator, ", ") + name_of(event.heads[i]);
  }
  if (event.heads.size() > kEventHeads) {
    text += " and " + std::to_string(event.heads.size() - kEventHeads) + " more";
  }
  size_t shown = 0;
  for (const std::string& name : figures_to_show(event)) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += (shown++ == 0 ? " (" : ", ") + words + " " + number(event.figures.at(name));
  }
  if (shown > 0) text += ")";
  return sanitise_terminal(text);
}

std::shared_ptr<Sink> make_progress_line(const ProgressOptions& options,
                                         std::function<double()> clock) {
  return std::make_shared<ProcessBound<Sink>>(
      std::make_unique<ProgressLine>(options, std::move(clock)));
}

}  // namespace exporter

std::shared_ptr<Sink> make_progress_line(const ProgressOptions& options) {
  return exporter::make_progress_line(options, [] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  });
}

}  // namespace headscope
