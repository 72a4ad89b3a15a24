#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <new>

#include "headscope/monitor.h"
#include "tests/support/models/torch_memory.h"

// What operator new holds is counted too.
using headscope::testing::TorchMemory;

void* operator new(size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  TorchMemory::enter(static_cast<int64_t>(malloc_usable_size(memory)));
  return memory;
}

void operator delete(void* memory) noexcept {
  if (memory != nullptr) TorchMemory::enter(-static_cast<int64_t>(malloc_usable_size(memory)));
  std::free(memory);
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace headscope {
namespace {

/// Goal 13: at most two buffers of second moments and 64 KB a thread, however long the context.
class MeasuredStep : public ::testing::TestWithParam<int64_t> {};

TEST_P(MeasuredStep, HoldsTwoBuffersOfSecondMoments) {
  constexpr int64_t kBatch = 4, kHeads = 12, kWidth = 64;
  const int64_t tokens = GetParam();
  const at::Tensor q = at::randn({kBatch, tokens, kHeads, kWidth}).transpose(1, 2);
  const at::Tensor z = at::scaled_dot_product_attention(q, q, q, {}, 0.0, true);
  const at::Tensor ids = at::randint(500, {kBatch, tokens}, at::kLong);
  Options options;
  options.schedule.train_every = 1;
  options.schedule.budget = 0;
  options.log = [](LogLevel, const std::string& line) { ADD_FAILURE() << line; };
  Monitor monitor(options, {});
  TorchMemory memory;
  for (int64_t step = 0; step < 2; ++step) {  // the first also fills what is kept for good
    auto scope = monitor.begin_step({.step = step});
    scope.micro_batch(ids);
    memory.count([&] { static_cast<void>(monitor.observe(0, q, q, q, z)); });
  }
  const int64_t gram = kHeads * kWidth * kWidth * static_cast<int64_t>(sizeof(float));
  RecordProperty("peak_bytes", std::to_string(memory.peak()));
  EXPECT_GE(memory.peak(), gram) << "nothing was counted";
  EXPECT_LE(memory.peak(), 2 * gram + 64 * 1024);
}

INSTANTIATE_TEST_SUITE_P(Tokens, MeasuredStep, ::testing::Values(1024, 4096));

}  // namespace
}  // namespace headscope
