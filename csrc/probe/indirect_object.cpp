#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>

#include "csrc/probe/row_draws.h"
#include "headscope/screen_batches.h"

namespace headscope {
namespace {

const std::string kIndirectObject = "indirect_object_batch";

/// Where the slots of a template are; -1: not there.
struct SlotPositions {
  int64_t first_name, second_name, subject, place, object;
};

int64_t slot_position(const std::vector<int64_t>& prompt, int64_t slot, const char* name,
                      bool needed) {
  const auto found = std::find(prompt.begin(), prompt.end(), slot);
  if (found == prompt.end()) {
    if (needed) refuse_batch(kIndirectObject, std::string("the prompt has no slot ") + name);
    return -1;
  }
  if (std::find(found + 1, prompt.end(), slot) != prompt.end())
    refuse_batch(kIndirectObject, std::string("the prompt has the slot ") + name + " twice");
  return found - prompt.begin();
}

void check_token_ids(const char* what, const std::vector<int64_t>& ids, size_t least) {
  if (ids.size() < least)
    refuse_batch(kIndirectObject, std::string(what) + " must hold at least " +
                                      std::to_string(least) + " token ids, got " +
                                      std::to_string(ids.size()));
  std::set<int64_t> seen;
  for (const int64_t id : ids) {
    if (id < 0)
      refuse_batch(kIndirectObject, std::string(what) + " holds the token id " +
                                        std::to_string(id) + "; ids are 0 or more");
    if (!seen.insert(id).second)
      refuse_batch(kIndirectObject, std::string(what) + " holds the token id " +
                                        std::to_string(id) +
                                        " twice; give words that are one token each");
  }
}

SlotPositions checked_template(const IndirectObjectOptions& options) {
  const auto& prompt = options.prompt;
  for (const int64_t token : prompt) {
    if (token < kObject)
      refuse_batch(kIndirectObject, "the prompt holds " + std::to_string(token) +
                                        ", which is neither a token id nor a slot");
  }
  const SlotPositions at = {slot_position(prompt, kFirstName, "kFirstName", true),
                            slot_position(prompt, kSecondName, "kSecondName", true),
                            slot_position(prompt, kSubject, "kSubject", true),
                            slot_position(prompt, kPlace, "kPlace", false),
                            slot_position(prompt, kObject, "kObject", false)};
  if (!(at.first_name < at.second_name && at.second_name < at.subject))
    refuse_batch(kIndirectObject,
                 "the slots must stand in the order kFirstName, kSecondName, kSubject; they are at "
                 "positions " +
                     std::to_string(at.first_name) + ", " + std::to_string(at.second_name) +
                     " and " + std::to_string(at.subject));
  check_token_ids("names", options.names, 2);
  check_token_ids("places", options.places, at.place >= 0 ? 1 : 0);
  check_token_ids("objects", options.objects, at.object >= 0 ? 1 : 0);
  if (options.examples < 1)
    refuse_batch(kIndirectObject,
                 "examples must be at least 1, got " + std::to_string(options.examples));
  return at;
}

/// Positions up to the query of each name that stands there, ascending.
std::map<int64_t, std::vector<int64_t>> name_positions(const std::set<int64_t>& names,
                                                       std::span<const int64_t> tokens,
                                                       int64_t query) {
  std::map<int64_t, std::vector<int64_t>> found;
  for (int64_t t = 0; t <= query; ++t) {
    const int64_t token = tokens[static_cast<size_t>(t)];
    if (names.contains(token)) found[token].push_back(t);
  }
  return found;
}

}  // namespace

IndirectObjectBatch indirect_object_batch(const IndirectObjectOptions& options) {
  const SlotPositions at = checked_template(options);
  const auto length = static_cast<int64_t>(options.prompt.size());
  IndirectObjectBatch batch;
  batch.tokens = at::empty({options.examples, length}, at::kLong);
  RandomState random(options.seed);
  const auto drawn_from = [&](const std::vector<int64_t>& ids) {
    return ids[static_cast<size_t>(random.integer(0, static_cast<int64_t>(ids.size())))];
  };
  for (int64_t n = 0; n < options.examples; ++n) {
    const auto pair = random.choice(static_cast<int64_t>(options.names.size()), 2);
    const int64_t io = options.names[static_cast<size_t>(pair[0])];
    const int64_t subject = options.names[static_cast<size_t>(pair[1])];
    const bool io_first = n % 2 == 0;
    int64_t* row = batch.tokens.data_ptr<int64_t>() + n * length;
    std::copy(options.prompt.begin(), options.prompt.end(), row);
    if (at.place >= 0) row[at.place] = drawn_from(options.places);
    if (at.object >= 0) row[at.object] = drawn_from(options.objects);
    const int64_t io_position = io_first ? at.first_name : at.second_name;
    const int64_t s1_position = io_first ? at.second_name : at.first_name;
    row[io_position] = io;
    row[s1_position] = row[at.subject] = subject;
    batch.indirect_object.push_back(io);
    batch.subject.push_back(subject);
    batch.io_position.push_back(io_position);
    batch.s1_position.push_back(s1_position);
    batch.s2_position.push_back(at.subject);
    batch.query.push_back(length - 1);
  }
  return batch;
}

std::vector<Pattern> indirect_object_patterns(std::span<const int64_t> names) {
  check_token_ids("names", {names.begin(), names.end()}, 2);
  const auto known = std::make_shared<const std::set<int64_t>>(names.begin(), names.end());
  Pattern mover;
  mover.name = "name-mover";
  mover.targets = [known](std::span<const int64_t> tokens, int64_t query) {
    std::vector<int64_t> targets;
    for (const auto& [name, positions] : name_positions(*known, tokens, query))
      if (positions.size() == 1) targets.push_back(positions.front());
    std::sort(targets.begin(), targets.end());
    return targets;
  };
  Pattern inhibition;
  inhibition.name = "s-inhibition";
  inhibition.targets = [known](std::span<const int64_t> tokens, int64_t query) {
    std::vector<int64_t> targets;
    for (const auto& [name, positions] : name_positions(*known, tokens, query))
      if (positions.size() == 2) targets.push_back(positions.back());
    std::sort(targets.begin(), targets.end());
    return targets;
  };
  return {mover, inhibition};
}

}  // namespace headscope
