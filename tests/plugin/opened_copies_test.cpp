// The program is not linked with headscope: every copy is opened, as a plug-in or a wheel is.
// Each case has a process of its own.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <cstdio>
#include <cstdlib>

#include "tests/support/system/library_copy.h"
#include "tests/support/system/temporary_directory.h"

namespace headscope {
namespace {

using testing::copy_library;
using testing::OpenedLibrary;
using testing::TemporaryDirectory;

/// Ends the process of a case unless `text` holds `part`.
void require(const std::string& text, const std::string& part) {
  if (text.find(part) != text.npos) return;
  std::fprintf(stderr, "'%s' is not in '%s'\n", part.c_str(), text.c_str());
  std::exit(1);
}

bool operators_work() {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("headscope::symmetric_eigenvalues", "")
                      .typed<at::Tensor(const at::Tensor&)>();
  return op.call(at::eye(3)).equal(at::ones({3}, at::kDouble));
}

void the_first_works_the_second_is_refused(int mode) {
  TemporaryDirectory folder;
  const OpenedLibrary first(copy_library(HEADSCOPE_LIBRARY, folder.file("a.so")), mode);
  const OpenedLibrary second(copy_library(HEADSCOPE_LIBRARY, folder.file("b.so"), "9.8.7"), mode);
  require(second.refusal(), second.file + " (headscope 9.8.7) is a second copy");
  require(second.refusal(), "first by " + first.file + " (headscope " HEADSCOPE_VERSION ").");
  std::exit(first.refusal().empty() && operators_work() ? 0 : 1);
}

void operators_outlive_dlclose() {
  TemporaryDirectory folder;
  OpenedLibrary first(copy_library(HEADSCOPE_LIBRARY, folder.file("a.so")), RTLD_LOCAL);
  first.close();
  if (!operators_work()) std::exit(1);
  OpenedLibrary second(copy_library(HEADSCOPE_LIBRARY, folder.file("b.so")), RTLD_LOCAL);
  require(second.refusal(), first.file);
  second.close();
  std::exit(operators_work() ? 0 : 1);
}

void others_hold_the_name() {
  torch::Library other(torch::Library::DEF, "headscope", std::nullopt, "other.cpp", 7);
  other.def("something(Tensor x) -> ()");
  const OpenedLibrary library(HEADSCOPE_LIBRARY, RTLD_LOCAL);
  require(library.refusal(), "other.cpp");
  std::exit(0);
}

class OpenedCopies : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  const ::testing::ExitedWithCode good{0};
};

TEST_F(OpenedCopies, TheFirstWorksAndTheSecondIsRefused) {
  EXPECT_EXIT(the_first_works_the_second_is_refused(RTLD_LOCAL), good, "");
  EXPECT_EXIT(the_first_works_the_second_is_refused(RTLD_GLOBAL), good, "");
}

TEST_F(OpenedCopies, OperatorsOutliveDlclose) {
  EXPECT_EXIT(operators_outlive_dlclose(), good, "");
}

TEST_F(OpenedCopies, OperatorsOfAnotherLibraryUnderOurNameAreNamed) {
  EXPECT_EXIT(others_hold_the_name(), good, "");
}

}  // namespace
}  // namespace headscope
