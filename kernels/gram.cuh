#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/device.cuh"
#include "kernels/launch.h"

// Second moments by tensor cores; docs/kernels/gram.md explains the layout and the error bound.
namespace headscope::kernels {

inline constexpr int kMaxGrouped = 32;

/// The layers of one launch, as a kernel parameter.
struct GramGroup {
  GramProblem problems[kMaxGrouped];
  int first_block[kMaxGrouped + 1];  // a problem's blocks are numbered split * heads + head
  int first_head[kMaxGrouped + 1];
  bool is_vectorised[kMaxGrouped];  // rows are read 16 bytes at a time
  int problem_count;
  int width;             // D, at most the tile's
  int tokens_per_block;  // of the (b, t) of a head, in order
  float* partials;       // [blocks][GramLayout::kPartial]
};

/// Which warp of a block computes what of G, and where a block leaves its sums. kWidth is D rounded
/// up.
template <int kWidth_>
struct GramLayout {
  static constexpr int kWidth = kWidth_;
  static constexpr int kRowBlocks = kWidth / 16;            // of 16 rows of G, one a warp
  static constexpr int kColumnBlocks = kRowBlocks / 2 + 1;  // of 16 columns, for each row block
  // The widest matrices do not fit into the registers of a block: two blocks read the same tokens.
  static constexpr int kPasses = kWidth > 128 ? 2 : 1;
  static constexpr int kColumnBlocksAtOnce = (kColumnBlocks + kPasses - 1) / kPasses;
  static constexpr int kThreads = 32 * kRowBlocks;
  static constexpr int kGramPartial = kColumnBlocks * 8 * kThreads;
  static constexpr int kPartial =
      kGramPartial + kWidth;  // floats: 8 a thread and column block, sum

  /// Whether the warp of `row_block` computes the column block `offset` further on, around the
  /// matrix: with an even number of them the pair half way round would be computed twice.
  __device__ static bool computes(int row_block, int offset) {
    const bool is_half_way = kRowBlocks % 2 == 0 && offset == kRowBlocks / 2;
    return offset < kColumnBlocks && (!is_half_way || row_block < kRowBlocks / 2);
  }
};

/// How a block works on z. kParts is the number of bf16 terms that an element of z - shift is split
/// into (1: z itself, in its own 16-bit type).
template <typename Element_, int kWidth_, int kParts_>
struct GramTile : GramLayout<kWidth_> {
  using Element = Element_;
  // The 16-bit type that the tensor cores multiply.
  using Operand = typename std::conditional<kParts_ == 1, Element, __nv_bfloat16>::type;
  static constexpr int kParts = kParts_;
  static constexpr int kTokens = sizeof(Element) == 4 && kWidth_ > 128 ? 16 : 32;
  static constexpr int kStages = 3;
  // Warps that fit on a multiprocessor beside each other; left to itself ptxas aims higher and
  // spills.
  static constexpr int kLeastWarps = kParts == 3 || (kParts == 2 && kWidth_ == 128) ? 12 : 16;
  static constexpr int kLeastBlocks = kWidth_ / 16 < kLeastWarps ? kLeastWarps / (kWidth_ / 16) : 1;
  // Tokens that are summed in registers before they are added to the block's partial sums.
  static constexpr int kFlushTiles = 1024 / kTokens;

  // 16 bytes more than the row: ldmatrix then reads its eight rows from different banks.
  static constexpr int kPitch = kWidth_ + 8;
  static constexpr int kRawPitch = kParts == 1 ? kPitch : kWidth_;
  static constexpr int kRawBytes = kTokens * kRawPitch * static_cast<int>(sizeof(Element));
  static constexpr int kPartBytes = kParts == 1 ? 0 : kTokens * kPitch * 2;
  static constexpr int kSharedBytes =
      kStages * (kRawBytes + kTokens) + kParts * kPartBytes;  // and a kept flag a token
};

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }

__device__ __forceinline__ void multiply_add(__half, float (&sum)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
  mma_m16n8k16_f16(sum, a, b, sum);
}
__device__ __forceinline__ void multiply_add(__nv_bfloat16, float (&sum)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
  mma_m16n8k16_bf16(sum, a, b, sum);
}

/// Takes the leading bf16 of two values off them; the first in the low half.
__device__ __forceinline__ unsigned take_bf16_pair(float& first, float& second) {
  const __nv_bfloat16 low = __float2bfloat16(first), high = __float2bfloat16(second);
  first -= __bfloat162float(low);
  second -= __bfloat162float(high);
  return __bfloat16_as_ushort(low) | static_cast<unsigned>(__bfloat16_as_ushort(high)) << 16;
}

/// Brings tiles of tokens of one head into a ring of shared-memory stages.
template <typename Tile>
class GramLoader {
  using Element = typename Tile::Element;

 public:
  __device__ GramLoader(const GramProblem& problem, int width, bool is_vectorised, int head,
                        int first, int last, unsigned char* shared)
      : problem_(problem),
        z_(static_cast<const Element*>(problem.z) + head * problem.z_head_stride),
        raw_(reinterpret_cast<Element*>(shared)),
        kept_(shared + Tile::kStages * Tile::kRawBytes),
        width_(width),
        last_(last),
        next_(first),
        is_vectorised_(is_vectorised) {}

  /// Starts the next tile's way into `stage`; one commit group whatever happens.
  __device__ void start(int stage) {
    if (next_ < last_) {
      if (is_vectorised_) {
        start_vectors(stage);
      } else {
        copy_elements(stage);
      }
    }
    cp_async_commit();
    next_ += Tile::kTokens;
  }

  __device__ const Element* raw(int stage) const {
    return raw_ + stage * Tile::kTokens * Tile::kRawPitch;
  }
  /// A kept flag a token.
  __device__ const unsigned char* kept(int stage) const { return kept_ + stage * Tile::kTokens; }
  /// Kept tokens among those whose first element this thread brought.
  __device__ int kept_count() const { return kept_count_; }

 private:
  /// Where token `next_ + row` begins; nullptr when it does not count.
  __device__ const Element* row_of(int row) const {
    const int token = next_ + row;
    if (token >= last_) return nullptr;
    const int b = token / problem_.tokens, t = token - b * problem_.tokens;
    if (problem_.keep != nullptr &&
        !problem_.keep[b * problem_.keep_batch_stride + t * problem_.keep_token_stride])
      return nullptr;
    return z_ + b * problem_.z_batch_stride + t * problem_.z_token_stride;
  }

  __device__ void note_kept(int stage, int row, bool is_kept) {
    kept_[stage * Tile::kTokens + row] = is_kept;
    kept_count_ += is_kept;
  }

  __device__ void start_vectors(int stage) {
    constexpr int kVector = 16 / sizeof(Element), kVectors = Tile::kWidth / kVector;
    const int column = threadIdx.x % kVectors * kVector;
    Element* const target = raw_ + stage * Tile::kTokens * Tile::kRawPitch + column;
    for (int row = threadIdx.x / kVectors; row < Tile::kTokens; row += Tile::kThreads / kVectors) {
      const Element* const source = row_of(row);
      const bool is_read = source != nullptr && column < width_;
      cp_async_16(target + row * Tile::kRawPitch, is_read ? source + column : z_, is_read);
      if (column == 0) note_kept(stage, row, source != nullptr);
    }
  }

  __device__ void copy_elements(int stage) {
    Element* const target = raw_ + stage * Tile::kTokens * Tile::kRawPitch;
    for (int i = threadIdx.x; i < Tile::kTokens * Tile::kWidth; i += Tile::kThreads) {
      const int row = i / Tile::kWidth, column = i % Tile::kWidth;
      const Element* const source = row_of(row);
      const bool is_read = source != nullptr && column < width_;
      target[row * Tile::kRawPitch + column] =
          is_read ? source[column * problem_.z_width_stride] : Element{};
      if (column == 0) note_kept(stage, row, source != nullptr);
    }
  }

  const GramProblem& problem_;
  const Element* z_;
  Element* raw_;
  unsigned char* kept_;
  int width_, last_, next_, kept_count_ = 0;
  bool is_vectorised_;
};

/// Splits raw - shift into bf16 terms, zeros for tokens that do not count.
template <typename Tile>
class GramSplitter {
 public:
  __device__ GramSplitter(const float* shift, int width, unsigned char* shared)
      : parts_(reinterpret_cast<unsigned*>(shared)) {
    if (shift == nullptr) return;
    if (column() < width) shift_[0] = shift[column()];
    if (column() + 1 < width) shift_[1] = shift[column() + 1];
  }

  __device__ void split(const typename Tile::Element* raw, const unsigned char* kept) {
    constexpr int kRowsAtOnce = Tile::kThreads / (Tile::kWidth / 2);
    for (int row = threadIdx.x / (Tile::kWidth / 2); row < Tile::kTokens; row += kRowsAtOnce) {
      const typename Tile::Element* const source = raw + row * Tile::kRawPitch + column();
      const bool is_kept = kept[row] != 0;
      float first = is_kept ? to_float(source[0]) - shift_[0] : 0.f;
      float second = is_kept ? to_float(source[1]) - shift_[1] : 0.f;
#pragma unroll
      for (int part = 0; part < Tile::kParts; ++part) {
        parts_[(part * Tile::kTokens + row) * (Tile::kPitch / 2) + column() / 2] =
            take_bf16_pair(first, second);
      }
    }
  }

  __device__ const void* parts() const { return parts_; }

 private:
  /// This thread's two columns, the same in every row.
  __device__ static int column() { return threadIdx.x % (Tile::kWidth / 2) * 2; }

  unsigned* parts_;
  float shift_[2] = {0.f, 0.f};
};

/// A warp's 16 rows of G and of the sum.
template <typename Tile>
struct GramAccumulator {
  using Operand = typename Tile::Operand;
  int first_offset;  // of the column blocks, see GramLayout::computes
  float gram[Tile::kColumnBlocksAtOnce][2][4];
  float sum[4];

  __device__ static void add_rounded(float (&total)[4], const float (&step)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] += step[i];
  }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < Tile::kColumnBlocksAtOnce; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) gram[i][j / 4][j % 4] = 0.f;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = 0.f;
  }

  /// Adds a tile: Z^T Z, from operands [kParts][kTokens][kPitch].
  __device__ void add(const Operand* operands) {
#pragma unroll 1  // two steps at once spill registers
    for (int token = 0; token < Tile::kTokens; token += 16)
      add_step(operands + token * Tile::kPitch);
  }

  /// Adds 16 tokens. Tensor cores truncate their sums, which would add up to a bias: each step
  /// starts at zero, and its result is added with rounding.
  __device__ void add_step(const Operand* operands) {
    // Products of parts p + q >= kOrder are below the error bound.
    constexpr int kOrder = Tile::kParts == 1 ? 1 : 3;
    constexpr unsigned kOne = std::is_same<Operand, __half>::value ? 0x3c003c00u : 0x3f803f80u;
    constexpr int kPart = Tile::kTokens * Tile::kPitch;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int matrix = lane / 8, row = lane % 8;
    const Operand* const left_rows = operands + (matrix / 2 * 8 + row) * Tile::kPitch;
    const Operand* const right_rows = operands + (matrix % 2 * 8 + row) * Tile::kPitch;

    unsigned left[Tile::kParts][4];
#pragma unroll
    for (int p = 0; p < Tile::kParts; ++p)
      ldmatrix_x4_trans(left[p], left_rows + p * kPart + warp * 16 + matrix % 2 * 8);
    float step[4] = {0.f, 0.f, 0.f, 0.f};
    const unsigned ones[2] = {kOne, kOne};
#pragma unroll
    for (int p = Tile::kParts - 1; p >= 0; --p) multiply_add(Operand{}, step, left[p], ones);
    add_rounded(sum, step);

#pragma unroll
    for (int i = 0; i < Tile::kColumnBlocksAtOnce; ++i) {
      const int offset = first_offset + i;
      if (!Tile::computes(warp, offset)) continue;
      const int column = (warp + offset) % Tile::kRowBlocks * 16;
      unsigned right[Tile::kParts][4];
#pragma unroll
      for (int q = 0; q < Tile::kParts; ++q)
        ldmatrix_x4_trans(right[q], right_rows + q * kPart + column + matrix / 2 * 8);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float product[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
        for (int q = Tile::kParts - 1; q >= 0; --q) {
          const unsigned factor[2] = {right[q][2 * half], right[q][2 * half + 1]};
#pragma unroll
          for (int p = Tile::kParts - 1; p >= 0; --p) {
            if (p + q < kOrder) multiply_add(Operand{}, product, left[p], factor);
          }
        }
        add_rounded(gram[i][half], product);
      }
    }
  }

  /// Empties itself into the block's partial sums, which only this thread touches.
  __device__ void flush(float* partial, bool is_first) {
    const auto add = [&](float& total, float value) { total = is_first ? value : total + value; };
    float* const own = partial + first_offset * 8 * Tile::kThreads + threadIdx.x;
#pragma unroll
    for (int i = 0; i < Tile::kColumnBlocksAtOnce; ++i) {
      if (first_offset + i >= Tile::kColumnBlocks) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) add(own[(i * 8 + j) * Tile::kThreads], gram[i][j / 4][j % 4]);
    }
    if (first_offset == 0 && threadIdx.x % 4 == 0) {  // all columns of the product with ones agree
      float* const row =
          partial + Tile::kGramPartial + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
      add(row[0], sum[0]);
      add(row[8], sum[2]);
    }
    clear();
  }
};

__device__ __forceinline__ int find_problem(const int* firsts, int problem_count, int index) {
  int problem = 0;
  while (problem + 1 < problem_count && index >= firsts[problem + 1]) ++problem;
  return problem;
}

/// One block: one head's tokens of one split, into its partial sums.
template <typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kLeastBlocks)
    gram_kernel(const __grid_constant__ GramGroup group) {
  HEADSCOPE_DYNAMIC_SHARED(shared);
  const int block = static_cast<int>(blockIdx.x) / Tile::kPasses;
  const int pass = static_cast<int>(blockIdx.x) % Tile::kPasses;
  const int index = find_problem(group.first_block, group.problem_count, block);
  const GramProblem& problem = group.problems[index];
  const int within = block - group.first_block[index];
  const int head = within % problem.heads, split = within / problem.heads;
  const int first = split * group.tokens_per_block;
  const int last = min(first + group.tokens_per_block, problem.batch * problem.tokens);
  const int tiles = (last - first + Tile::kTokens - 1) / Tile::kTokens;

  GramLoader<Tile> loader(problem, group.width, group.is_vectorised[index], head, first, last,
                          shared);
  GramAccumulator<Tile> accumulator;
  GramSplitter<Tile> splitter(
      problem.shift == nullptr ? nullptr : problem.shift + head * group.width, group.width,
      shared + Tile::kStages * (Tile::kRawBytes + Tile::kTokens));
  float* const partial = group.partials + static_cast<int64_t>(block) * Tile::kPartial;
  accumulator.first_offset = pass * Tile::kColumnBlocksAtOnce;
  accumulator.clear();
  for (int stage = 0; stage < Tile::kStages - 1; ++stage) loader.start(stage);
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % Tile::kStages;
    cp_async_wait<Tile::kStages - 2>();
    // The tile is there for all threads, and all are done with the stage that is filled next.
    __syncthreads();
    loader.start((tile + Tile::kStages - 1) % Tile::kStages);
    if constexpr (Tile::kParts == 1) {
      accumulator.add(loader.raw(stage));
    } else {
      splitter.split(loader.raw(stage), loader.kept(stage));
      __syncthreads();
      accumulator.add(static_cast<const __nv_bfloat16*>(splitter.parts()));
    }
    if ((tile + 1) % Tile::kFlushTiles == 0 || tile + 1 == tiles)
      accumulator.flush(partial, tile < Tile::kFlushTiles);
  }
  cp_async_wait<0>();
  if (head == 0 && pass == 0 && problem.count != nullptr && loader.kept_count() > 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(problem.count),
              static_cast<unsigned long long>(loader.kept_count()));
  }
}

/// Where a block's partial sum `index` belongs.
template <typename Layout>
struct GramEntry {
  int row, column;
  bool is_used;  // the lower triangle of diagonal blocks and blocks computed elsewhere are not

  __device__ GramEntry(int index, int width) {
    const int value = index / Layout::kThreads, thread = index % Layout::kThreads;
    const int warp = thread / 32, lane = thread % 32, offset = value / 8;
    row = warp * 16 + lane / 4 + value % 4 / 2 * 8;
    column =
        (warp + offset) % Layout::kRowBlocks * 16 + value % 8 / 4 * 8 + lane % 4 * 2 + value % 2;
    is_used = row < width && column < width && (offset > 0 || column >= row) &&
              Layout::computes(warp, offset);
  }
};

inline constexpr int kReduceThreads = 256;

/// The sum of all threads' values, in thread 0, in a fixed order.
__device__ __forceinline__ double sum_of_block(double value, double* of_warps) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  __syncthreads();  // the values of the sum before have been read
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0) {
    for (int warp = 0; warp < kReduceThreads / 32; ++warp) total += of_warps[warp];
  }
  return total;
}

/// One block: adds up the splits of one head in order, in double, and adds them to its sums.
template <typename Layout>
__global__ void __launch_bounds__(kReduceThreads)
    gram_reduce_kernel(const __grid_constant__ GramGroup group) {
  HEADSCOPE_SHARED(double, of_warps, [kReduceThreads / 32]);
  const int index =
      find_problem(group.first_head, group.problem_count, static_cast<int>(blockIdx.x));
  const GramProblem& problem = group.problems[index];
  const int head = static_cast<int>(blockIdx.x) - group.first_head[index], width = group.width;
  const int blocks = group.first_block[index + 1] - group.first_block[index];
  const float* const partials =
      group.partials + static_cast<int64_t>(group.first_block[index] + head) * Layout::kPartial;
  const auto sum_of_splits = [&](int entry) {
    double total = 0;
    for (int block = 0; block < blocks; block += problem.heads)
      total +=
          static_cast<double>(partials[static_cast<int64_t>(block) * Layout::kPartial + entry]);
    return static_cast<float>(total);
  };

  float* const gram = problem.gram + static_cast<int64_t>(head) * width * width;
  double trace = 0, squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < Layout::kGramPartial; i += kReduceThreads) {
    const GramEntry<Layout> entry(i, width);
    if (!entry.is_used) continue;
    float& upper = gram[entry.row * width + entry.column];
    const float value = upper + sum_of_splits(i);
    upper = value;
    gram[entry.column * width + entry.row] = value;
    const bool is_diagonal = entry.row == entry.column;
    trace += is_diagonal ? value : 0.f;
    squares += static_cast<double>(value) * value * (is_diagonal ? 1 : 2);
  }
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kReduceThreads)
    problem.sum[head * width + i] += sum_of_splits(Layout::kGramPartial + i);

  trace = sum_of_block(trace, of_warps);
  squares = sum_of_block(squares, of_warps);
  if (threadIdx.x == 0) {
    if (problem.trace != nullptr) problem.trace[head] = static_cast<float>(trace);
    if (problem.squared_norm != nullptr) problem.squared_norm[head] = static_cast<float>(squares);
  }
}

}  // namespace headscope::kernels
