#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "headscope/fields.h"

namespace headscope::testing {

/// Two doubles with the same bits; NaN equals the NaN of the same bits only, -0 is not 0.
inline void expect_same(double got, double want, const std::string& where) {
  EXPECT_EQ(std::bit_cast<uint64_t>(got), std::bit_cast<uint64_t>(want))
      << where << ": got " << got << ", want " << want;
}

template <typename T>
void expect_same(const T& got, const T& want, const std::string& where) requires requires {
  got == want;
}
{ EXPECT_EQ(got, want) << where; }

inline void expect_same(const std::vector<double>& got, const std::vector<double>& want,
                        const std::string& where) {
  ASSERT_EQ(got.size(), want.size()) << where;
  for (size_t i = 0; i < got.size(); ++i) {
    expect_same(got[i], want[i], where + "[" + std::to_string(i) + "]");
  }
}

inline void expect_same(const std::map<std::string, double>& got,
                        const std::map<std::string, double>& want, const std::string& where) {
  ASSERT_EQ(got.size(), want.size()) << where;
  for (const auto& [name, value] : want) {
    ASSERT_TRUE(got.contains(name)) << where << ": no " << name;
    expect_same(got.at(name), value, where + "." + name);
  }
}

/// Every field of a record that has a table of them.
template <typename Record>
requires requires { Fields<Record>::kTable; }
void expect_same(const Record& got, const Record& want, const std::string& where) {
  for_each_field<Record>([&](const auto& field) {
    expect_same(got.*field.member, want.*field.member, where + "." + std::string(field.name));
  });
}

inline void expect_same(const PatternReading& got, const PatternReading& want,
                        const std::string& where) {
  for (const Figure<PatternReading>& figure : kPatternFigures) {
    expect_same(got.*figure.member, want.*figure.member, where + "." + std::string(figure.name));
  }
}

inline void expect_same(const HeadReading& got, const HeadReading& want, const std::string& where) {
  for (const Figure<HeadReading>& figure : kHeadFigures) {
    expect_same(got.*figure.member, want.*figure.member, where + "." + std::string(figure.name));
  }
  EXPECT_EQ(got.id, want.id) << where;
  expect_same(got.eigenvalues, want.eigenvalues, where + ".eigenvalues");
  expect_same(got.best_pattern, want.best_pattern, where + ".best_pattern");
  expect_same(got.samples, want.samples, where + ".samples");
  expect_same(got.finite, want.finite, where + ".finite");
  expect_same(got.specialising, want.specialising, where + ".specialising");
  ASSERT_EQ(got.patterns.size(), want.patterns.size()) << where;
  for (size_t i = 0; i < want.patterns.size(); ++i)
    expect_same(got.patterns[i], want.patterns[i], where + ".patterns[" + std::to_string(i) + "]");
}

/// The same list of records.
template <typename Record>
void expect_same_list(const std::vector<Record>& got, const std::vector<Record>& want,
                      const std::string& where) {
  ASSERT_EQ(got.size(), want.size()) << where;
  for (size_t i = 0; i < want.size(); ++i) {
    expect_same(got[i], want[i], where + "[" + std::to_string(i) + "]");
  }
}

/// Everything that a history keeps, bit for bit.
inline void expect_same(const Snapshot& got, const Snapshot& want,
                        const std::string& where = "snapshot") {
  expect_same<Snapshot>(got, want, where);
  expect_same(got.health, want.health, where + ".health");
  expect_same_list(got.heads, want.heads, where + ".heads");
  expect_same_list(got.circuits, want.circuits, where + ".circuits");
  expect_same_list(got.events, want.events, where + ".events");
  expect_same_list(got.ablations, want.ablations, where + ".ablations");
  expect_same_list(got.calibrations, want.calibrations, where + ".calibrations");
}

}  // namespace headscope::testing
