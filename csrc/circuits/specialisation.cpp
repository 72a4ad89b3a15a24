#include <cmath>
#include <stdexcept>

#include "csrc/circuits/state_bytes.h"
#include "headscope/circuits.h"

namespace headscope {

using circuits::json;

namespace {

constexpr int kVersion = 1;
constexpr const char* kKind = "specialisation";

}  // namespace

SpecialisationTracker::SpecialisationTracker(Rule rule) : rule_(rule) {
  if (!(rule.rise > 0) || !std::isfinite(rule.rise) || rule.hold < 1)
    throw std::invalid_argument("specialisation rule: rise " + std::to_string(rule.rise) +
                                " must be finite and above 0, hold " + std::to_string(rule.hold) +
                                " 1 or more");
}

bool SpecialisationTracker::update(HeadId head, double participation_ratio,
                                   double null_participation_ratio, double max_pr) {
  const double excess = participation_ratio - null_participation_ratio;
  if (!std::isfinite(excess) || !(max_pr > 0) || !std::isfinite(max_pr)) return false;
  HeadState& state = heads_[head];
  state.lowest = std::fmin(state.lowest, excess);
  const bool risen = excess - state.lowest >= rule_.rise * max_pr;
  state.held = risen == state.specialising ? 0 : state.held + 1;
  if (state.held < rule_.hold) return false;
  state.held = 0;
  state.specialising = risen;
  return risen;
}

bool SpecialisationTracker::specialising(HeadId head) const {
  const auto found = heads_.find(head);
  return found != heads_.end() && found->second.specialising;
}

void SpecialisationTracker::forget(const std::function<bool(const HeadId&)>& which) {
  std::erase_if(heads_, [&](const auto& entry) { return which(entry.first); });
}

std::string SpecialisationTracker::save() const {
  json heads = json::array();
  for (const auto& [id, state] : heads_)
    heads.push_back({circuits::id_to_json(id), state.lowest, state.held, state.specialising});
  return circuits::to_bytes({{"kind", kKind},
                             {"version", kVersion},
                             {"rule", {{"rise", rule_.rise}, {"hold", rule_.hold}}},
                             {"heads", heads}});
}

void SpecialisationTracker::load(const std::string& bytes) {
  const json saved = circuits::from_bytes(bytes, kKind, kVersion);
  try {
    circuits::require_same(saved.at("rule"), {{"rise", rule_.rise}, {"hold", rule_.hold}},
                           "specialisation state");
    std::map<HeadId, HeadState> heads;
    for (const auto& entry : saved.at("heads"))
      heads[circuits::id_from_json(entry.at(0))] = {
          entry.at(1).get<double>(), entry.at(2).get<int64_t>(), entry.at(3).get<bool>()};
    heads_ = std::move(heads);
  } catch (const json::exception& error) {
    throw std::runtime_error(std::string("saved specialisation state is damaged: ") + error.what());
  }
}

}  // namespace headscope
