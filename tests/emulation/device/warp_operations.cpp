#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "tests/emulation/device/number_types.h"
#include "tests/emulation/device/scheduler.h"

namespace headscope::emulation {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

template <typename Visit>
void for_each_lane(unsigned lanes, Visit visit) {
  for (; lanes != 0; lanes &= lanes - 1) visit(std::countr_zero(lanes));
}

bool needs_whole_warp(WarpOperation operation) { return operation >= WarpOperation::kLdmatrix; }

int shuffle_source(WarpOperation operation, const WarpOperands& operands, int lane) {
  const int width = operands.width, segment = lane & ~(width - 1);
  int source = lane;
  if (operation == WarpOperation::kShuffle) source = segment + (operands.argument & (width - 1));
  if (operation == WarpOperation::kShuffleXor) source = lane ^ operands.argument;
  if (operation == WarpOperation::kShuffleUp) source = lane - operands.argument;
  if (operation == WarpOperation::kShuffleDown) source = lane + operands.argument;
  const bool inside =
      operation == WarpOperation::kShuffleUp ? source >= segment : source < segment + width;
  return inside ? source : lane;
}

std::string shuffle(WarpOperation operation, Thread* lanes, unsigned active, Place place) {
  std::string wrong;
  for_each_lane(active, [&](int lane) {
    const int source = shuffle_source(operation, lanes[lane].operands, lane);
    if (((active >> source) & 1u) == 0) {
      wrong = std::string(name_of(operation)) + " at " + text_of(place) + ": lane " +
              std::to_string(lane) + " reads lane " + std::to_string(source) +
              ", which does not take part";
      return;
    }
    lanes[lane].result = lanes[source].operands.value;
  });
  return wrong;
}

std::uint64_t reduce(WarpOperation operation, std::uint64_t left, std::uint64_t right) {
  const auto a = static_cast<std::uint32_t>(left), b = static_cast<std::uint32_t>(right);
  const auto signed_a = static_cast<std::int32_t>(a), signed_b = static_cast<std::int32_t>(b);
  switch (operation) {
    case WarpOperation::kReduceAdd:
      return a + b;
    case WarpOperation::kReduceAnd:
      return a & b;
    case WarpOperation::kReduceOr:
      return a | b;
    case WarpOperation::kReduceMinUnsigned:
      return std::min(a, b);
    case WarpOperation::kReduceMaxUnsigned:
      return std::max(a, b);
    case WarpOperation::kReduceMinSigned:
      return signed_a < signed_b ? a : b;
    default:
      return signed_a > signed_b ? a : b;
  }
}

void load_matrices(bool transposed, Thread* lanes) {
  const auto fragments = [&](int lane) -> LdmatrixFragments& {
    return *static_cast<LdmatrixFragments*>(lanes[lane].operands.fragment);
  };
  for (int lane = 0; lane < 32; ++lane) {
    const int row = lane / 4, column = 2 * (lane % 4);
    for (int matrix = 0; matrix < 4; ++matrix) {
      const auto element = [&](int r, int c) -> unsigned {
        return fragments(8 * matrix + r).row[c];
      };
      const unsigned low = transposed ? element(column, row) : element(row, column);
      const unsigned high = transposed ? element(column + 1, row) : element(row, column + 1);
      fragments(lane).registers[matrix] = low | high << 16;
    }
  }
}

float round_sum(double exact) {
  const auto nearest = static_cast<float>(exact);
  const bool away = std::fabs(static_cast<double>(nearest)) > std::fabs(exact);
  return options().mma_rounding == MmaRounding::kTowardZero && away && std::isfinite(nearest)
             ? std::nextafterf(nearest, 0.f)
             : nearest;
}

/// One matrix product, m16n8k16: exact products and sums, rounded once.
template <typename ToFloat>
void multiply(Thread* lanes, ToFloat to_float) {
  ++statistics().mmas;
  double a[16][16], b[16][8], c[16][8];
  const auto unpack = [&](unsigned pair, double& first, double& second) {
    first = to_float(static_cast<std::uint16_t>(pair));
    second = to_float(static_cast<std::uint16_t>(pair >> 16));
  };
  for (int lane = 0; lane < 32; ++lane) {
    const auto& in = *static_cast<MmaFragments*>(lanes[lane].operands.fragment);
    const int g = lane / 4, t = 2 * (lane % 4);
    unpack(in.a[0], a[g][t], a[g][t + 1]);
    unpack(in.a[1], a[g + 8][t], a[g + 8][t + 1]);
    unpack(in.a[2], a[g][t + 8], a[g][t + 9]);
    unpack(in.a[3], a[g + 8][t + 8], a[g + 8][t + 9]);
    unpack(in.b[0], b[t][g], b[t + 1][g]);
    unpack(in.b[1], b[t + 8][g], b[t + 9][g]);
    c[g][t] = in.c[0];
    c[g][t + 1] = in.c[1];
    c[g + 8][t] = in.c[2];
    c[g + 8][t + 1] = in.c[3];
  }
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < 8; ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    float* const d = static_cast<MmaFragments*>(lanes[lane].operands.fragment)->d;
    const int g = lane / 4, t = 2 * (lane % 4);
    d[0] = round_sum(c[g][t]);
    d[1] = round_sum(c[g][t + 1]);
    d[2] = round_sum(c[g + 8][t]);
    d[3] = round_sum(c[g + 8][t + 1]);
  }
}

float bf16_to_float(std::uint16_t bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

/// All 65536 halves, made once: a conversion costs more than the product it is for.
float f16_to_float(std::uint16_t bits) {
  static const std::vector<float> kValues = [] {
    std::vector<float> values(65536);
    for (unsigned i = 0; i < 65536; ++i)
      values[i] = __half2float(__ushort_as_half(static_cast<unsigned short>(i)));
    return values;
  }();
  return kValues[bits];
}

}  // namespace

const char* name_of(WarpOperation operation) {
  static constexpr const char* kNames[] = {
      "__syncwarp",        "__ballot_sync, __any_sync or __all_sync",
      "__shfl_sync",       "__shfl_xor_sync",
      "__shfl_up_sync",    "__shfl_down_sync",
      "__match_any_sync",  "__reduce_add_sync",
      "__reduce_min_sync", "__reduce_max_sync",
      "__reduce_min_sync", "__reduce_max_sync",
      "__reduce_and_sync", "__reduce_or_sync",
      "ldmatrix",          "ldmatrix.trans",
      "mma.bf16",          "mma.f16"};
  return kNames[static_cast<int>(operation)];
}

std::string exchange_operands(WarpOperation operation, Thread* lanes, unsigned active,
                              Place place) {
  switch (operation) {
    case WarpOperation::kSyncwarp:
      return {};
    case WarpOperation::kBallot: {
      unsigned votes = 0;
      for_each_lane(active, [&](int lane) {
        if (lanes[lane].operands.value != 0) votes |= 1u << lane;
      });
      for_each_lane(active, [&](int lane) { lanes[lane].result = votes; });
      return {};
    }
    case WarpOperation::kShuffle:
    case WarpOperation::kShuffleXor:
    case WarpOperation::kShuffleUp:
    case WarpOperation::kShuffleDown:
      return shuffle(operation, lanes, active, place);
    case WarpOperation::kMatchAny:
      for_each_lane(active, [&](int lane) {
        unsigned equal = 0;
        for_each_lane(active, [&](int other) {
          if (lanes[other].operands.value == lanes[lane].operands.value) equal |= 1u << other;
        });
        lanes[lane].result = equal;
      });
      return {};
    case WarpOperation::kLdmatrix:
    case WarpOperation::kLdmatrixTransposed:
      load_matrices(operation == WarpOperation::kLdmatrixTransposed, lanes);
      return {};
    case WarpOperation::kMmaBf16:
      multiply(lanes, bf16_to_float);
      return {};
    case WarpOperation::kMmaF16:
      multiply(lanes, f16_to_float);
      return {};
    default: {
      std::uint64_t result = lanes[std::countr_zero(active)].operands.value;
      for_each_lane(active & (active - 1), [&](int lane) {
        result = reduce(operation, result, lanes[lane].operands.value);
      });
      for_each_lane(active, [&](int lane) { lanes[lane].result = result; });
      return {};
    }
  }
}

std::uint64_t warp_operation(WarpOperation operation, unsigned mask, const WarpOperands& operands,
                             Place place) {
  return scheduler().warp_operation(operation, mask, operands, place);
}

Gathering& Scheduler::gathering_of(Thread& thread, unsigned mask, Place place) {
  for (Gathering& waiting : thread.warp->gatherings) {
    if ((waiting.mask & mask) == 0) continue;
    if (waiting.mask == mask && waiting.operation == thread.operation && waiting.place == place)
      return waiting;
    char text[400];
    std::snprintf(text, sizeof text,
                  "divergent warp operation: lane %d is in %s (mask %08x) at %s while lanes %08x "
                  "wait in %s (mask %08x) at %s",
                  thread.lane, name_of(thread.operation), mask, text_of(place).c_str(),
                  waiting.arrived, name_of(waiting.operation), waiting.mask,
                  text_of(waiting.place).c_str());
    fail(text, place);
  }
  thread.warp->gatherings.push_back(
      {mask, 0, thread.operation, place,
       thread.operation == WarpOperation::kSyncwarp ? fresh_order_tag() : nullptr});
  return thread.warp->gatherings.back();
}

/// Wakes the lanes that gathered. False: the launch was given up.
bool Scheduler::complete_gathering(Warp& warp, std::size_t index) {
  ++statistics().warp_operations;
  const Gathering gathered = warp.gatherings[index];
  warp.gatherings.erase(warp.gatherings.begin() + static_cast<std::ptrdiff_t>(index));
  const unsigned active = gathered.arrived & warp.live;
  const std::string wrong =
      exchange_operands(gathered.operation, warp.lanes, active, gathered.place);
  wake(warp, active);
  if (!wrong.empty()) give_up(wrong);
  return wrong.empty();
}

std::uint64_t Scheduler::warp_operation(WarpOperation operation, unsigned mask,
                                        const WarpOperands& operands, Place place) {
  const Unobserved unobserved;
  Thread& thread = running();
  Warp& warp = *thread.warp;
  if (((mask >> thread.lane) & 1u) == 0)
    fail(std::string(name_of(operation)) + ": the calling lane is not in its mask", place);
  if (needs_whole_warp(operation) && warp.live != kAllLanes)
    fail(std::string(name_of(operation)) + ": needs all 32 lanes of the warp", place);
  thread.operation = operation;
  thread.operands = operands;
  thread.place = place;
  thread.state = ThreadState::kInWarpOperation;
  Gathering& gathering = gathering_of(thread, mask, place);
  gathering.arrived |= 1u << thread.lane;
  void* const tag = gathering.order_tag;
  if (tag != nullptr) release_order(tag);
  if ((gathering.arrived & warp.live) != (mask & warp.live)) {
    yield();
  } else if (complete_gathering(warp,
                                static_cast<std::size_t>(&gathering - warp.gatherings.data()))) {
    // Goes on without a switch: half of the switches of shuffle-heavy kernels.
    warp.ready &= ~(1u << thread.lane);
  } else {
    yield();
  }
  if (tag != nullptr) acquire_order(tag);
  return thread.result;
}

}  // namespace headscope::emulation
