#include "csrc/exporter/history/blob_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <iterator>
#include <string>

#include "tests/support/exporter/sample_snapshot.h"

namespace headscope::exporter {
namespace {

using headscope::testing::sample_snapshot;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

// The layout of docs/history.md, byte for byte.
TEST(Figures, HaveTheDocumentedBytes) {
  Snapshot snapshot;
  snapshot.tokens = 1;
  snapshot.wall_time = -2;
  snapshot.loss = std::bit_cast<double>(uint64_t{0x7FF8000000000001});
  snapshot.sink_any = 0.5;
  snapshot.sink_class = -0.0;
  snapshot.repeat_gap = 2;
  HeadReading head;
  head.id = {1, 258};
  head.best_pattern = "ab";
  head.samples = 3;
  head.specialising = true;
  constexpr auto kBySlot = by_slot(kHeadFigures);
  constexpr int kV = static_cast<int>(kBySlot.size()) - 10;
  head.*kBySlot.front().member = 2;
  head.*kBySlot.back().member = 1;
  snapshot.heads = {head};
  const std::string bytes = encode_figures(snapshot);
  const std::string start = "HSFG" + bytes_of({kV, 0, 0, 0,                    // version
                                               0,  0, 0, 0, 0, 0, 0xF0, 0x3F,  // tokens
                                               0,  0, 0, 0, 0, 0, 0x00, 0xC0,  // wall time
                                               1,  0, 0, 0, 0, 0, 0xF8, 0x7F,  // loss
                                               0,  0, 0, 0, 0, 0, 0xE0, 0x3F,  // sink_any
                                               0,  0, 0, 0, 0, 0, 0x00, 0x80,  // sink_class
                                               0,  0, 0, 0, 0, 0, 0x00, 0x40,  // repeat_gap
                                               1,  0, 0, 0, 2, 0, 0,    0,    'a', 'b',  // classes
                                               1,  0, 0, 0,                              // heads
                                               1,  0, 0, 0, 2, 1, 0,    0,       // layer, head
                                               3,  0, 0, 0, 0, 0, 0,    0,       // flags, class
                                               3,  0, 0, 0, 0, 0, 0,    0,       // samples
                                               0,  0, 0, 0, 0, 0, 0x00, 0x40});  // first figure
  EXPECT_EQ(bytes.substr(0, start.size()), start);
  const std::string end = bytes_of({0, 0, 0, 0, 0, 0, 0xF0, 0x3F,  // last figure
                                    0, 0, 0, 0, 0, 0, 0, 0});      // no eigenvalues, no patterns
  EXPECT_EQ(bytes.substr(bytes.size() - end.size()), end);
  EXPECT_EQ(bytes.size(), start.size() + (kBySlot.size() - 2) * 8 + end.size());
}

TEST(Figures, EveryTruncationIsAnError) {
  testing::SampleShape small{1, 2, 2, {"induction"}};
  const std::string bytes = encode_figures(sample_snapshot(600, Source::kProbe, small));
  for (size_t size = 0; size < bytes.size(); ++size) {
    Snapshot snapshot;
    EXPECT_THROW(decode_figures(bytes.substr(0, size), snapshot), std::runtime_error) << size;
  }
}

TEST(Figures, BytesLeftOverAreAnError) {
  Snapshot snapshot;
  const std::string bytes = encode_figures(sample_snapshot()) + "x";
  EXPECT_THAT([&] { decode_figures(bytes, snapshot); },
              ThrowsMessage<std::runtime_error>(HasSubstr("left over")));
}

TEST(Figures, AnotherVersionIsAnError) {
  std::string bytes = encode_figures(sample_snapshot());
  bytes[4] = 9;
  Snapshot snapshot;
  EXPECT_THAT([&] { decode_figures(bytes, snapshot); },
              ThrowsMessage<std::runtime_error>(HasSubstr("version 9")));
}

// The places that version 1 gave them, for good.
TEST(Figures, KeepTheirSlots) {
  constexpr double HeadReading::*kHead[] = {&HeadReading::participation_ratio,
                                            &HeadReading::participation_ratio_centred,
                                            &HeadReading::participation_ratio_quadratic,
                                            &HeadReading::participation_ratio_quadratic_centred,
                                            &HeadReading::null_participation_ratio,
                                            &HeadReading::pr_integral,
                                            &HeadReading::output_norm,
                                            &HeadReading::entropy,
                                            &HeadReading::max_logit,
                                            &HeadReading::sink_mass,
                                            &HeadReading::prefix_matching};
  constexpr double PatternReading::*kPattern[] = {
      &PatternReading::selectivity,  &PatternReading::mass,     &PatternReading::margin,
      &PatternReading::control_mass, &PatternReading::margin_z, &PatternReading::mass_z};
  for (size_t i = 0; i < std::size(kHead); ++i)
    EXPECT_TRUE(by_slot(kHeadFigures)[i].member == kHead[i]) << i;
  for (size_t i = 0; i < std::size(kPattern); ++i)
    EXPECT_TRUE(by_slot(kPatternFigures)[i].member == kPattern[i]) << i;
}

// Version 1, which every later program reads: 11 figures a head, 6 a pattern.
TEST(Figures, OfTheFirstVersionAreRead) {
  const std::string real = bytes_of({0, 0, 0, 0, 0, 0, 0xF0, 0x3F});  // 1
  std::string bytes = "HSFG" + bytes_of({1, 0, 0, 0});
  for (int i = 0; i < 6; ++i) bytes += real;
  bytes += bytes_of({1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0});  // one class without a name, one head
  bytes += std::string(6 * 4, '\0');                        // id, flags, class, samples
  const auto number = [](int value) {
    const auto bits = std::bit_cast<uint64_t>(static_cast<double>(value));
    std::string text;
    for (int i = 0; i < 8; ++i) text += static_cast<char>(bits >> (8 * i));
    return text;
  };
  for (int i = 0; i < 11; ++i) bytes += number(1 + i);
  bytes += bytes_of({0, 0, 0, 0, 1, 0, 0, 0});  // no eigenvalues, one pattern
  for (int i = 0; i < 6; ++i) bytes += number(1 + i);
  Snapshot snapshot;
  decode_figures(bytes, snapshot);
  const HeadReading& head = snapshot.heads.at(0);
  for (const auto& figure : kHeadFigures)
    EXPECT_EQ(head.*figure.member == 1. + static_cast<double>(figure.slot), figure.slot < 11)
        << figure.name;
  for (const auto& figure : kPatternFigures)
    EXPECT_EQ(head.patterns.at(0).*figure.member == 1. + static_cast<double>(figure.slot),
              figure.slot < 6)
        << figure.name;
}

TEST(Figures, AHugeCountAsksForNoMemory) {
  std::string bytes = encode_figures(Snapshot{});
  bytes.replace(bytes.size() - 4, 4, "\xFF\xFF\xFF\xFF");
  Snapshot snapshot;
  EXPECT_THAT([&] { decode_figures(bytes, snapshot); },
              ThrowsMessage<std::runtime_error>(HasSubstr("truncated")));
}

}  // namespace
}  // namespace headscope::exporter
