#pragma once

#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>

namespace headscope::demo {

/// FNV-1a, 64 bits, over the four bytes of each loss in order: equal only if every loss is the same
/// bits.
class LossHash {
 public:
  LossHash() = default;
  /// Goes on from the value of an interrupted run.
  explicit LossHash(uint64_t value) : value_(value) {}
  void add(float loss) {
    const auto bits = std::bit_cast<uint32_t>(loss);
    for (int shift = 0; shift < 32; shift += 8)
      value_ = (value_ ^ ((bits >> shift) & 0xffu)) * 0x100000001b3u;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

inline std::string hexadecimal(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace headscope::demo
