#include "csrc/exporter/page/run_api.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "csrc/exporter/common/thinning.h"
#include "csrc/exporter/history/history_cursor.h"
#include "csrc/exporter/history/history_json.h"
#include "csrc/exporter/page/query.h"
#include "csrc/exporter/page/timeline_json.h"
#include "headscope/version.h"

namespace headscope::exporter {
namespace {

constexpr char kRun[] = "/api/v1/run";
constexpr char kSnapshot[] = "/api/v1/snapshot";
constexpr char kEvents[] = "/api/v1/events";
constexpr char kJson[] = "application/json";
constexpr size_t kEarlierRows = 1000;
constexpr size_t kFewestReportPoints = 20;
constexpr size_t kMostReportPoints = 400;

/// Tells this process's cursors from those of a server that was there before it.
std::string instance_name() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

std::string head_text(const std::string& instance, uint64_t next, bool reset) {
  return "{\"instance\":\"" + instance + "\",\"next\":" + std::to_string(next) +
         ",\"reset\":" + (reset ? "true" : "false");
}

/// At most `points` rows of each source.
Timeline::Rows thinned(const Timeline::Rows& rows, size_t points) {
  Timeline::Rows kept;
  std::vector<size_t> of_source[2], indices;
  for (size_t i = 0; i < rows.size(); ++i)
    of_source[rows[i]->source == Source::kProbe].push_back(i);
  for (const auto& candidates : of_source)
    for (const size_t i : thinned_indices(candidates.size(), points))
      indices.push_back(candidates[i]);
  std::sort(indices.begin(), indices.end());
  for (const size_t i : indices) kept.push_back(rows[i]);
  return kept;
}

std::string rows_text(const std::string& instance, const Timeline::Answer& answer,
                      const Timeline::Rows& rows, const std::optional<HeadId>& head,
                      bool heads_of_all) {
  std::string text = head_text(instance, answer.next, answer.reset) + ",\"snapshots\":[";
  for (const auto& row : rows) {
    if (text.back() != '[') text += ',';
    const bool newest = row == answer.newest_train || row == answer.newest_probe;
    append_row(text, *row, head, heads_of_all || newest);
  }
  return text + "]}";
}

template <typename Items>
void append_items(std::string& text, const char* name, const Items& items) {
  text += std::string(",\"") + name + "\":[";
  for (const auto& item : items) {
    if (text.back() != '[') text += ',';
    text += to_json(item.item);
  }
  text += ']';
}

std::string news_text(const std::string& instance, const Timeline::News& news) {
  std::string text = head_text(instance, news.next, news.reset);
  append_items(text, "events", news.events);
  append_items(text, "ablations", news.ablations);
  return text + "}";
}

}  // namespace

RunApi::RunApi(Options options) : options_(std::move(options)), instance_(instance_name()) {}

bool RunApi::knows(const std::string& path) {
  return path == kRun || path == kSnapshot || path == kEvents;
}

HttpResponse RunApi::answer(const HttpRequest& request) {
  try {
    read_earlier_segments();
    std::string body;
    if (request.path == kRun) {
      parse_query(request.query, "");
      body = run_json();
    } else {
      body = request.path == kSnapshot ? snapshots_json(request.query) : events_json(request.query);
    }
    return {200, kJson, std::move(body), {}, {}};
  } catch (const BadQuery& error) {
    std::string body = "{\"error\":";
    append_string(body, error.what());
    return {400, kJson, body + "}", {}, {}};
  }
}

std::string RunApi::run_json() {
  const Timeline::Answer now = timeline_.newest();
  const Snapshot* latest = now.latest.get();
  const Snapshot* measured = now.measured.get();
  const TimelineRow* probe = now.newest_probe.get();
  std::string text =
      "{\"instance\":\"" + instance_ +
      "\",\"version\":\"" HEADSCOPE_VERSION "\",\"live\":" + (options_.live ? "true" : "false") +
      ",\"facts\":{";
  for (const auto& [name, value] : options_.facts) {
    if (text.back() != '{') text += ',';
    append_string(text, name);
    text += ':';
    append_string(text, value);
  }
  text += "},\"step\":" + (latest ? std::to_string(latest->step) : "null") + ",\"definitions\":";
  if (measured == nullptr) {
    text += "null";
  } else {
    text += "{\"dtype\":";
    append_string(text, measured->dtype);
    text += ",\"integral_axis\":";
    append_string(text, measured->integral_axis);
    text += ",\"controls\":";
    append_string(text, measured->controls);
    text += ",\"context\":" + std::to_string(measured->context) +
            ",\"samples\":" + std::to_string(measured->heads.front().samples) + "}";
  }
  text += ",\"circuits\":" + to_json(probe ? probe->circuits : std::vector<CircuitReading>{});
  const Health health = options_.health ? options_.health() : latest ? latest->health : Health{};
  return text + ",\"health\":" + to_json(health) + "}";
}

std::string RunApi::snapshots_json(const std::string& query) {
  const Query asked = parse_query(query, "since head points");
  const Timeline::Answer answer = timeline_.since(asked.since);
  return rows_text(instance_, answer, thinned(answer.rows, asked.points), asked.head, false);
}

std::string RunApi::events_json(const std::string& query) {
  return news_text(instance_, timeline_.news_since(parse_query(query, "since").since));
}

std::string RunApi::everything(size_t figures) {
  const Timeline::Answer answer = timeline_.since(0);
  size_t largest = 1;
  for (const auto& row : answer.rows) largest = std::max(largest, row->figures.size());
  const size_t points = std::clamp(figures / largest / 2, kFewestReportPoints, kMostReportPoints);
  return "{\"run\":" + run_json() + ",\"news\":" + news_text(instance_, timeline_.news_since(0)) +
         ",\"timeline\":" +
         rows_text(instance_, answer, thinned(answer.rows, points), std::nullopt, true) + "}";
}

void RunApi::read_earlier_segments() {
  if (options_.run_dir.empty()) return;
  const std::unique_lock lock(reading_, std::try_to_lock);
  const auto segment = timeline_.first_segment();
  // Who comes while another one reads gets what there is, and the rest with its next poll.
  if (!lock.owns_lock() || read_ || !segment) return;
  read_ = true;
  if (*segment == 0) return;  // the run began in this process
  try {
    HistoryCursor cursor(options_.run_dir);
    timeline_.prepend(cursor.next(kEarlierRows, *segment - 1));
  } catch (const std::exception&) {
    // The history says by itself what is wrong with it; the page goes on with what it has.
  }
}

}  // namespace headscope::exporter
