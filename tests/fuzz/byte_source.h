#pragma once

#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>
#include <string>

namespace headscope::fuzz {

/// Takes values off the front of a fuzzer's bytes; when they are used up, all are 0 or empty.
class ByteSource {
 public:
  explicit ByteSource(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  /// 0 to `most`.
  size_t count(size_t most) { return byte() % (most + 1); }
  bool flag() { return (byte() & 1) != 0; }

  /// Any bytes; some longer than a label may be.
  std::string text() {
    const size_t length = byte();
    std::string part;
    for (size_t i = 0; i < length % 48; ++i) part += static_cast<char>(byte());
    std::string text = part;
    if (length >= 240) {
      for (int i = 0; i < 20; ++i) text += part;
    }
    return text;
  }

  /// Any bits: every NaN, infinities, denormals.
  double number() {
    using Limits = std::numeric_limits<double>;
    constexpr double kSpecial[] = {0,
                                   -0.0,
                                   1,
                                   0.1,
                                   Limits::max(),
                                   Limits::lowest(),
                                   Limits::denorm_min(),
                                   Limits::infinity(),
                                   -Limits::infinity(),
                                   Limits::quiet_NaN()};
    const uint8_t choice = byte();
    return choice < std::size(kSpecial) ? kSpecial[choice] : raw<double>();
  }
  int64_t whole() { return flag() ? raw<int64_t>() : byte(); }

  template <typename Value>
  Value raw() {
    uint8_t buffer[sizeof(Value)];
    for (uint8_t& b : buffer) b = byte();
    Value value;
    std::memcpy(&value, buffer, sizeof value);
    return value;
  }

  std::string rest() {
    const std::string text(bytes_.begin(), bytes_.end());
    bytes_ = {};
    return text;
  }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace headscope::fuzz
