#include "plugin/cli/trajectory_json.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <utility>
#include <vector>

#include "plugin/cli/csv.h"

namespace headscope::cli {
namespace {

using Json = nlohmann::json;

bool is_head(const std::string& key) {
  static const std::regex kHead(R"(L\d{1,9}_H\d{1,9})");
  return std::regex_match(key, kHead);
}

/// A field of the table: a number as it stands, nothing for null, a text in quotes.
std::string field(const Json& value, const std::string& where) {
  if (value.is_null()) return {};
  if (value.is_number()) return value.dump();
  if (!value.is_string()) throw InputError(where + ": " + value.dump() + " is no number");
  std::string quoted = "\"";
  for (const char c : value.get<std::string>())
    quoted += c == '"' ? "\"\"" : std::string(1, c == '\n' || c == '\r' ? ' ' : c);
  return quoted + "\"";
}

/// Python writes what JSON has no word for: NaN as null, infinities as the texts that the table
/// knows.
std::string standard_json(const std::string& text) {
  static constexpr std::pair<const char*, const char*> kWords[] = {
      {"NaN", "null"}, {"-Infinity", "\"-inf\""}, {"Infinity", "\"inf\""}};
  std::string standard;
  standard.reserve(text.size());
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted && c == '\\') standard += text[at++];
    if (c == '"') quoted = !quoted;
    const auto word = std::find_if(std::begin(kWords), std::end(kWords), [&](const auto& known) {
      return !quoted && text.compare(at, std::strlen(known.first), known.first) == 0;
    });
    if (word != std::end(kWords)) {
      standard += word->second;
      at += std::strlen(word->first) - 1;
    } else if (at < text.size()) {
      standard += text[at];
    }
  }
  return standard;
}

/// The arrays of a file, by quantity and head.
class Trajectories {
 public:
  Trajectories(const Json& file, std::string name) : name_(std::move(name)) {
    find_list(file, "step", {"step", "steps", "ckpt_step", "trajectory_steps"});
    if (lists_.empty())
      throw InputError(name_ +
                       ": JSON without a list of steps; it is called step, steps, "
                       "ckpt_step or trajectory_steps");
    find_list(file, "tokens", {"tokens"});
    find_list(file, "tokens_b", {"tokens_B", "ckpt_tokens_B", "trajectory_tokens_B"});
    find_list(file, "phase", {"phase"});
    for (const auto& [key, value] : file.items()) find_heads(key, value);
    if (heads_.empty())
      throw InputError(name_ + ": JSON without an array of a head, named like \"L4_H4\"");
  }

  std::string table() const {
    std::string text = "head";
    for (const auto& [column, list] : lists_) text += ',' + column;
    for (const auto& quantity : quantities_) text += ',' + field(quantity, name_);
    text += '\n';
    const size_t checkpoints = lists_.front().second->size();
    for (const auto& [head, arrays] : heads_)
      for (size_t i = 0; i < checkpoints; ++i) append_row(text, head, arrays, i);
    return text;
  }

 private:
  using Arrays = std::map<std::string, const Json*>;

  void find_list(const Json& file, const char* column, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (!file.contains(key) || !file.at(key).is_array()) continue;
      take_length(key, file.at(key));
      lists_.emplace_back(column, &file.at(key));
      return;
    }
  }

  void find_heads(const std::string& key, const Json& value) {
    if (!value.is_object()) return;
    for (const auto& [head, content] : value.items()) {
      if (!is_head(head)) continue;
      if (content.is_array()) {
        take_array(head, key, content);
      } else if (content.is_object()) {
        for (const auto& [quantity, array] : content.items())
          if (array.is_array()) take_array(head, quantity, array);
      }
    }
  }

  void take_array(const std::string& head, const std::string& quantity, const Json& array) {
    take_length(quantity + " of " + head, array);
    heads_[head][quantity] = &array;
    quantities_.insert(quantity);
  }

  void take_length(const std::string& what, const Json& array) const {
    if (lists_.empty() || array.size() == lists_.front().second->size()) return;
    throw InputError(name_ + ": " + what + " has " + std::to_string(array.size()) + " values for " +
                     std::to_string(lists_.front().second->size()) + " steps");
  }

  void append_row(std::string& text, const std::string& head, const Arrays& arrays,
                  size_t i) const {
    const auto where = [&](const std::string& what) {
      return name_ + ": " + what + ", value " + std::to_string(i + 1);
    };
    text += head;
    for (const auto& [column, list] : lists_) text += ',' + field(list->at(i), where(column));
    for (const auto& quantity : quantities_) {
      const auto found = arrays.find(quantity);
      text += ',';
      if (found != arrays.end())
        text += field(found->second->at(i), where(quantity + " of " + head));
    }
    text += '\n';
  }

  std::string name_;
  std::vector<std::pair<std::string, const Json*>> lists_;  // the steps first
  std::map<std::string, Arrays> heads_;
  std::set<std::string> quantities_;
};

}  // namespace

std::string table_of_json(std::istream& stream, const std::string& name) {
  const std::string text = standard_json({std::istreambuf_iterator<char>(stream), {}});
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object()) throw InputError(name + ": begins like JSON, but is no JSON object");
  return Trajectories(file, name).table();
}

}  // namespace headscope::cli
