#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "headscope/ablation.h"
#include "plugin/cli/commands.h"
#include "plugin/cli/csv.h"
#include "plugin/cli/json_text.h"

namespace headscope::cli {
namespace {

constexpr int64_t kMostHeads = 1 << 20;

/// The heads of one set, in the order in which they were written.
struct Spec {
  std::string text;
  std::vector<HeadId> heads;
};

InputError spec_error(const std::string& spec, const std::string& what) {
  return InputError("--spec '" + spec + "': " + what);
}

/// Parts of `text` between separators, without blanks around them.
std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    std::string part = text.substr(begin, end - begin);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    parts.push_back(std::move(part));
    begin = end + 1;
  }
  return parts;
}

std::optional<int32_t> whole(const std::string& text) {
  int32_t value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || value < 0) return std::nullopt;
  return value;
}

HeadId head_of(const std::string& part, const std::string& spec) {
  const size_t colon = part.find(':');
  const auto layer = whole(part.substr(0, colon));
  const auto head = colon == std::string::npos ? std::nullopt : whole(part.substr(colon + 1));
  if (!layer || !head)
    throw spec_error(spec, "'" + part + "' is no head; write LAYER:HEAD, from 0, as in 4:4,7:0");
  return {*layer, *head};
}

void check_exists(HeadId id, const std::string& part, const std::string& spec,
                  const DrawsArguments& arguments) {
  if (id.head >= arguments.heads)
    throw spec_error(spec, "'" + part + "' is head " + std::to_string(id.head) +
                               " of a layer with the " + std::to_string(arguments.heads) +
                               " heads 0.." + std::to_string(arguments.heads - 1) +
                               "; correct the spec or --heads");
  if (arguments.layers && id.layer >= *arguments.layers)
    throw spec_error(spec, "'" + part + "' is in layer " + std::to_string(id.layer) +
                               " of a model with the layers 0.." +
                               std::to_string(*arguments.layers - 1) +
                               "; correct the spec or --layers");
}

Spec parse_spec(const std::string& text, const DrawsArguments& arguments) {
  Spec spec = {text, {}};
  if (text.empty()) throw spec_error(text, "is empty; name the heads of the set, as in 4:4,7:0");
  std::set<HeadId> seen;
  for (const auto& part : parts_of(text, ',')) {
    const HeadId id = head_of(part, text);
    check_exists(id, part, text, arguments);
    if (!seen.insert(id).second)
      throw spec_error(text, "'" + part + "' is given twice; name each head once");
    spec.heads.push_back(id);
  }
  return spec;
}

/// Layers of which fewer heads could be drawn than the set has there.
ordered_json short_layers(const Spec& spec, const std::vector<HeadId>& drawn) {
  std::map<int32_t, int64_t> missing;
  for (const HeadId id : spec.heads) ++missing[id.layer];
  for (const HeadId id : drawn) --missing[id.layer];
  ordered_json layers = ordered_json::array();
  for (const auto& [layer, count] : missing)
    if (count > 0) layers.push_back(layer);
  return layers;
}

ordered_json draw(const Spec& spec, int64_t seed, const DrawsArguments& arguments, bool several,
                  RandomState& random) {
  const auto drawn = matched_random_reference(spec.heads, arguments.heads, random);
  ordered_json object = {{"seed", seed}, {"heads", heads_to_json(drawn)}};
  if (several) object["spec"] = spec.text;
  const ordered_json layers = short_layers(spec, drawn);
  if (!layers.empty()) object["short_layers"] = layers;
  return object;
}

}  // namespace

std::string draws(const DrawsArguments& arguments) {
  if (arguments.heads < 1 || arguments.heads > kMostHeads)
    throw InputError("--heads is " + std::to_string(arguments.heads) +
                     "; give the heads of a layer, 1.." + std::to_string(kMostHeads));
  if (arguments.layers && *arguments.layers < 1)
    throw InputError("--layers is " + std::to_string(*arguments.layers) +
                     "; give the layers of the model, 1 or more");
  std::vector<Spec> specs;
  for (const auto& given : arguments.specs)
    for (const auto& text : parts_of(given, ';')) specs.push_back(parse_spec(text, arguments));
  if (specs.empty()) throw InputError("no --spec; name the heads of a set, as in 4:4,7:0");

  ordered_json answer = {{"draws", ordered_json::array()}};
  for (const int64_t seed : arguments.seeds) {
    if (seed < 0 || seed > UINT32_MAX)
      throw InputError("--seed is " + std::to_string(seed) + "; give one in 0..4294967295");
    RandomState shared(static_cast<uint32_t>(seed));
    for (const Spec& spec : specs) {
      RandomState fresh(static_cast<uint32_t>(seed));
      answer["draws"].push_back(
          draw(spec, seed, arguments, specs.size() > 1, arguments.sweep ? shared : fresh));
    }
  }
  return to_text(answer);
}

}  // namespace headscope::cli
