#include "csrc/exporter/common/thinning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace headscope::exporter {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ThinnedIndices, KeepsFirstLastAndOrder) {
  for (const size_t size : {3u, 7u, 100u, 4001u}) {
    for (const size_t count : {2u, 3u, 50u}) {
      const std::vector<size_t> indices = thinned_indices(size, count);
      EXPECT_LE(indices.size(), std::max<size_t>(count, std::min(size, count))) << size;
      EXPECT_EQ(indices.front(), 0u) << size << " " << count;
      EXPECT_EQ(indices.back(), size - 1) << size << " " << count;
      EXPECT_TRUE(std::is_sorted(indices.begin(), indices.end()));
      EXPECT_EQ(std::adjacent_find(indices.begin(), indices.end()), indices.end());
    }
  }
}

TEST(ThinnedIndices, KeepsAllOfFew) {
  EXPECT_THAT(thinned_indices(3, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(thinned_indices(0, 5), IsEmpty());
  EXPECT_THAT(thinned_indices(1, 5), ElementsAre(0));
}

TEST(ThinnedIndices, IsDenseWhereALogAxisIs) {
  const std::vector<size_t> indices = thinned_indices(10000, 400);
  EXPECT_GT(std::count_if(indices.begin(), indices.end(), [](size_t i) { return i < 100; }), 40);
  EXPECT_GT(std::count_if(indices.begin(), indices.end(), [](size_t i) { return i > 5000; }), 90);
}

}  // namespace
}  // namespace headscope::exporter
