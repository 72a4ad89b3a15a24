#include "csrc/exporter/history/blob_codec.h"

#include <bit>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <type_traits>

#include "headscope/fields.h"

namespace headscope::exporter {
namespace {

constexpr std::string_view kMagic = "HSFG";

constexpr auto kHead = by_slot(kHeadFigures);
constexpr auto kPattern = by_slot(kPatternFigures);

/// Version 1 had 11 figures a head and 6 a pattern. Every figure appended to a table since makes
/// the next version: 1 more for one of a head, 256 more for one of a pattern. Older ones are read.
constexpr uint32_t kFirstHeadFigures = 11, kFirstPatternFigures = 6;
constexpr uint32_t kVersion =
    1 + (kHead.size() - kFirstHeadFigures) + 256 * (kPattern.size() - kFirstPatternFigures);

static_assert(kHead.size() - kFirstHeadFigures < 256, "the version's two counts would overlap");

/// How many figures of the tables stored bytes hold.
struct StoredFigures {
  size_t head = kHead.size();
  size_t pattern = kPattern.size();
};

StoredFigures stored_figures(uint32_t version) {
  const StoredFigures stored{kFirstHeadFigures + (version - 1) % 256,
                             kFirstPatternFigures + (version - 1) / 256};
  if (version == 0 || stored.head > kHead.size() || stored.pattern > kPattern.size()) {
    throw std::runtime_error("figures are of version " + std::to_string(version) +
                             ", this program reads version " + std::to_string(kVersion));
  }
  return stored;
}

/// visit(value) for what a snapshot says in doubles, in the order of its table.
template <typename AnySnapshot, typename Visit>
void for_each_double(AnySnapshot& snapshot, const Visit& visit) {
  for_each_field<Snapshot>([&](const auto& field) {
    auto& value = snapshot.*field.member;
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, double>) visit(value);
  });
}

consteval size_t count_doubles() {
  size_t count = 0;
  for_each_field<Snapshot>([&](const auto& field) {
    count += std::is_same_v<std::remove_cvref_t<decltype(field.member)>, double Snapshot::*>;
  });
  return count;
}
static_assert(count_doubles() == 6, "another double of a snapshot needs another version");

constexpr uint32_t kFinite = 1;
constexpr uint32_t kSpecialising = 2;

class Writer {
 public:
  template <typename Integer>
  void integer(Integer value) {
    const auto bits = static_cast<std::make_unsigned_t<Integer>>(value);
    for (size_t i = 0; i < sizeof bits; ++i) {
      bytes_ += static_cast<char>(static_cast<uint8_t>(bits >> (8 * i)));
    }
  }
  void real(double value) { integer(std::bit_cast<uint64_t>(value)); }
  void raw(std::string_view text) { bytes_ += text; }
  void text(std::string_view text) {
    integer(static_cast<uint32_t>(text.size()));
    raw(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename Integer>
  Integer integer() {
    std::make_unsigned_t<Integer> bits = 0;
    const std::string_view part = raw(sizeof bits);
    for (size_t i = 0; i < sizeof bits; ++i) {
      const auto byte = static_cast<uint8_t>(part[i]);
      bits |= static_cast<decltype(bits)>(static_cast<decltype(bits)>(byte) << (8 * i));
    }
    return static_cast<Integer>(bits);
  }
  double real() { return std::bit_cast<double>(integer<uint64_t>()); }
  std::string_view raw(size_t size) {
    if (size > bytes_.size()) throw std::runtime_error("figures are truncated");
    const std::string_view part = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return part;
  }
  std::string text() { return std::string(raw(integer<uint32_t>())); }
  /// A count of items of at least `item_bytes`, so that a broken one cannot ask for more memory
  /// than there are bytes.
  size_t count(size_t item_bytes) {
    const uint32_t count = integer<uint32_t>();
    if (count > bytes_.size() / item_bytes) throw std::runtime_error("figures are truncated");
    return count;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

void write_head(const HeadReading& head, uint32_t class_index, Writer& writer) {
  writer.integer(head.id.layer);
  writer.integer(head.id.head);
  writer.integer((head.finite ? kFinite : 0) | (head.specialising ? kSpecialising : 0));
  writer.integer(class_index);
  writer.integer(head.samples);
  for (const auto& figure : kHead) writer.real(head.*figure.member);
  writer.integer(static_cast<uint32_t>(head.eigenvalues.size()));
  for (const double eigenvalue : head.eigenvalues) writer.real(eigenvalue);
  writer.integer(static_cast<uint32_t>(head.patterns.size()));
  for (const PatternReading& pattern : head.patterns) {
    for (const auto& figure : kPattern) writer.real(pattern.*figure.member);
  }
}

HeadReading read_head(const std::vector<std::string>& classes, const StoredFigures& stored,
                      Reader& reader) {
  HeadReading head;
  head.id.layer = reader.integer<int32_t>();
  head.id.head = reader.integer<int32_t>();
  const uint32_t flags = reader.integer<uint32_t>();
  head.finite = (flags & kFinite) != 0;
  head.specialising = (flags & kSpecialising) != 0;
  const uint32_t class_index = reader.integer<uint32_t>();
  if (class_index >= classes.size()) throw std::runtime_error("figures name an unknown class");
  head.best_pattern = classes[class_index];
  head.samples = reader.integer<int64_t>();
  for (size_t i = 0; i < stored.head; ++i) head.*kHead[i].member = reader.real();
  head.eigenvalues.resize(reader.count(sizeof(double)));
  for (double& eigenvalue : head.eigenvalues) eigenvalue = reader.real();
  head.patterns.resize(reader.count(stored.pattern * sizeof(double)));
  for (PatternReading& pattern : head.patterns) {
    for (size_t i = 0; i < stored.pattern; ++i) pattern.*kPattern[i].member = reader.real();
  }
  return head;
}

}  // namespace

std::string encode_figures(const Snapshot& snapshot) {
  std::map<std::string, uint32_t> class_indices;
  std::vector<std::string> classes;
  for (const HeadReading& head : snapshot.heads) {
    const auto index = static_cast<uint32_t>(classes.size());
    if (class_indices.emplace(head.best_pattern, index).second) {
      classes.push_back(head.best_pattern);
    }
  }
  Writer writer;
  writer.raw(kMagic);
  writer.integer(kVersion);
  for_each_double(snapshot, [&](double value) { writer.real(value); });
  writer.integer(static_cast<uint32_t>(classes.size()));
  for (const std::string& name : classes) writer.text(name);
  writer.integer(static_cast<uint32_t>(snapshot.heads.size()));
  for (const HeadReading& head : snapshot.heads) {
    write_head(head, class_indices.at(head.best_pattern), writer);
  }
  return writer.take();
}

void decode_figures(std::string_view bytes, Snapshot& snapshot) {
  constexpr size_t kSmallestText = sizeof(uint32_t);
  Reader reader(bytes);
  if (reader.raw(kMagic.size()) != kMagic) throw std::runtime_error("figures lack their mark");
  const StoredFigures stored = stored_figures(reader.integer<uint32_t>());
  for_each_double(snapshot, [&](double& value) { value = reader.real(); });
  std::vector<std::string> classes(reader.count(kSmallestText));
  for (std::string& name : classes) name = reader.text();
  const size_t smallest_head =
      6 * sizeof(uint32_t) + sizeof(int64_t) + stored.head * sizeof(double);
  const size_t heads = reader.count(smallest_head);
  snapshot.heads.clear();
  snapshot.heads.reserve(heads);
  for (size_t i = 0; i < heads; ++i) snapshot.heads.push_back(read_head(classes, stored, reader));
  if (!reader.at_end()) throw std::runtime_error("figures have bytes left over");
}

}  // namespace headscope::exporter
