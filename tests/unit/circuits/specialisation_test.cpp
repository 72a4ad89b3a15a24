#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "headscope/circuits.h"

namespace headscope {
namespace {

constexpr HeadId kHead = {1, 2};
constexpr double kMax = 16;  // a rise of .1 is 1.6

/// Numbers of the readings at which the head became specialising; the null's PR is 2.
std::vector<int> calls(SpecialisationTracker& tracker, const std::vector<double>& ratios) {
  std::vector<int> all;
  for (size_t i = 0; i < ratios.size(); ++i)
    if (tracker.update(kHead, ratios[i], 2, kMax)) all.push_back(static_cast<int>(i));
  return all;
}

TEST(Specialisation, IsARiseAboveTheLowestThatHolds) {
  SpecialisationTracker tracker;
  EXPECT_EQ(calls(tracker, {12, 5, 3, 4.5, 4.65, 4.7, 4.8, 9}), std::vector<int>{6});
  EXPECT_TRUE(tracker.specialising(kHead));
  EXPECT_FALSE(tracker.specialising({0, 0}));
}

TEST(Specialisation, AHighStartIsNoRise) {
  SpecialisationTracker tracker;
  EXPECT_EQ(calls(tracker, {12, 12, 12, 11, 11, 11}), std::vector<int>{});
}

TEST(Specialisation, ARiseThatDoesNotHoldIsNone) {
  SpecialisationTracker tracker;
  EXPECT_EQ(calls(tracker, {3, 9, 9, 3, 9, 9, 3}), std::vector<int>{});
}

TEST(Specialisation, EndsWhenTheRiseIsGoneAsLong) {
  SpecialisationTracker tracker;
  EXPECT_EQ(calls(tracker, {3, 9, 9, 9, 3, 3, 9, 3, 3}), std::vector<int>{3});
  EXPECT_TRUE(tracker.specialising(kHead));
  EXPECT_EQ(calls(tracker, {3}), std::vector<int>{});
  EXPECT_FALSE(tracker.specialising(kHead));
}

TEST(Specialisation, IsMeasuredAgainstTheHeadsOwnNull) {
  SpecialisationTracker tracker;
  for (const double null : {2., 8., 8., 8., 8.}) EXPECT_FALSE(tracker.update(kHead, 9, null, kMax));
  EXPECT_FALSE(tracker.specialising(kHead));
}

TEST(Specialisation, HoldsOnNaN) {
  SpecialisationTracker tracker;
  EXPECT_EQ(calls(tracker, {3, 9, kNaN, 9, kNaN, 9}), std::vector<int>{5});
  EXPECT_FALSE(tracker.update(kHead, 9, 2, kNaN));
  EXPECT_FALSE(tracker.update(kHead, 9, 2, 0));
}

TEST(Specialisation, ContinuesFromSavedBytes) {
  SpecialisationTracker unbroken, resumed;
  calls(unbroken, {5, 3, 9, 9});
  resumed.load(unbroken.save());
  EXPECT_EQ(resumed.save(), unbroken.save());
  EXPECT_EQ(calls(resumed, {9}), std::vector<int>{0});
}

TEST(Specialisation, RefusesOtherRulesAndBytes) {
  SpecialisationTracker other({.rise = .2});
  EXPECT_THROW(other.load(SpecialisationTracker().save()), std::runtime_error);
  EXPECT_THROW(other.load("junk"), std::runtime_error);
  EXPECT_THROW(SpecialisationTracker({.rise = 0}), std::invalid_argument);
  EXPECT_THROW(SpecialisationTracker({.hold = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace headscope
