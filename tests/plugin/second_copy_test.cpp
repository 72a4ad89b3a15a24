// The program is linked with libheadscope.so; HEADSCOPE_LIBRARY is that file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/models/tiny_model.h"
#include "tests/support/system/library_copy.h"
#include "tests/support/system/temporary_directory.h"

namespace headscope {
namespace {

using ::testing::AllOf;
using testing::Attached;
using testing::copy_library;
using ::testing::HasSubstr;
using testing::OpenedLibrary;
using testing::TemporaryDirectory;
using testing::tiny_training;
using testing::TinyModel;

/// Trains measured by the linked copy; what the same run gives unmeasured is the same.
void expect_measured_training() {
  TinyModel model(1), plain(1);
  Attached attached(model, {}, true);
  EXPECT_EQ(tiny_training(model, attached.monitor.get(), 0, 3),
            tiny_training(plain, nullptr, 0, 3));
  const RunReport report = attached.monitor->report();
  EXPECT_EQ(report.layers, 1);
  EXPECT_GT(report.health.probes, 0u);
  for (const auto& [kind, count] : report.health.errors) EXPECT_EQ(count, 0u) << kind;
}

class SecondCopy : public ::testing::TestWithParam<int> {
 protected:
  TemporaryDirectory folder;
};

TEST_P(SecondCopy, IsRefusedNamingBothFilesAndTrainingGoesOn) {
  const OpenedLibrary copy(copy_library(HEADSCOPE_LIBRARY, folder.file("libheadscope.so")),
                           GetParam());
  const std::string first = std::filesystem::path(HEADSCOPE_LIBRARY).parent_path().string();
  EXPECT_THAT(copy.refusal(), AllOf(HasSubstr(copy.file), HasSubstr(first + "/libheadscope.so"),
                                    HasSubstr("Load one of them only")));
  expect_measured_training();
}

TEST_P(SecondCopy, OfAnotherVersionIsRefusedNamingBothVersions) {
  const OpenedLibrary copy(copy_library(HEADSCOPE_LIBRARY, folder.file("libheadscope.so"), "9.8.7"),
                           GetParam());
  EXPECT_THAT(copy.refusal(), AllOf(HasSubstr(copy.file + " (headscope 9.8.7)"),
                                    HasSubstr("(headscope " HEADSCOPE_VERSION ")")));
  expect_measured_training();
}

TEST_P(SecondCopy, MayBeClosed) {
  OpenedLibrary copy(copy_library(HEADSCOPE_LIBRARY, folder.file("libheadscope.so")), GetParam());
  EXPECT_NE(copy.refusal(), "");
  copy.close();
  expect_measured_training();
}

INSTANTIATE_TEST_SUITE_P(Opened, SecondCopy, ::testing::Values(RTLD_LOCAL, RTLD_GLOBAL),
                         [](const auto& mode) {
                           return std::string(mode.param == RTLD_LOCAL ? "Local" : "Global");
                         });

}  // namespace
}  // namespace headscope
