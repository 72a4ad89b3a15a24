#include "headscope/state_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/models/tiny_model.h"
#include "tests/support/needs.h"
#include "tests/support/system/full_disk.h"
#include "tests/support/system/temporary_directory.h"

namespace headscope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

/// The state of a monitor that has measured, with an empty tensor and a NaN in it.
const StateDict& lived_state() {
  static const StateDict lived = [] {
    testing::TinyModel model(2);
    testing::Attached attached(model);
    testing::tiny_training(model, attached.monitor.get(), 0, 12);
    StateDict state = attached.monitor->state_dict();
    state["nothing"] = at::empty({0}, at::kByte);
    state["not a number"] = at::tensor({kNaN, -0.0}, at::kDouble);
    return state;
  }();
  return lived;
}

std::string bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

void expect_same(const StateDict& got, const StateDict& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_EQ(got.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(got.at(name).sizes(), tensor.sizes()) << name;
    EXPECT_EQ(bytes_of(got.at(name)), bytes_of(tensor)) << name;
  }
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string refusal_of(const std::string& path) {
  try {
    static_cast<void>(load_state(path));
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(StateFile, ComesBackBitForBit) {
  const TemporaryDirectory folder;
  const StateDict state = lived_state();
  save_state(state, folder.file("state.pt"));
  expect_same(load_state(folder.file("state.pt")), state);
  EXPECT_FALSE(
      std::filesystem::exists(folder.file("state.pt") + ".tmp" + std::to_string(getpid())));
}

TEST(StateFile, AMonitorGoesOnFromIt) {
  const TemporaryDirectory folder;
  testing::TinyModel model(2);
  testing::Attached first(model);
  testing::tiny_training(model, first.monitor.get(), 0, 12);
  save_state(first.monitor->state_dict(), folder.file("state.pt"));
  testing::Attached second(model);
  second.monitor->load_state_dict(load_state(folder.file("state.pt")));
  testing::Attached third(model);
  third.monitor->load_state_dict(first.monitor->state_dict());
  expect_same(second.monitor->state_dict(), third.monitor->state_dict());
}

TEST(StateFile, PythonReadsIt) {
  const std::string python = HEADSCOPE_TORCH_PYTHON;
  HEADSCOPE_NEED(!python.empty(), "no Python lies beside the torch of this build");
  HEADSCOPE_NEED(std::system((python + " -c 'import torch' > /dev/null 2>&1").c_str()) == 0,
                 python + " cannot import torch");
  const TemporaryDirectory folder;
  const StateDict state = lived_state();
  save_state(state, folder.file("state.pt"));
  const std::string program =
      "import sys, torch\n"
      "state = torch.load(sys.argv[1], weights_only=True)\n"
      "assert type(state) is dict, type(state)\n"
      "for name in sorted(state):\n"
      "    raw = state[name].contiguous().view(torch.uint8).tolist()\n"
      "    print(name, state[name].dtype, sum((i + 1) * b for i, b in enumerate(raw)), sep=':')\n";
  write_text(folder.file("read.py"), program);
  const std::string command = python + " " + folder.file("read.py") + " " +
                              folder.file("state.pt") + " > " + folder.file("out.txt") + " 2> " +
                              folder.file("errors.txt");  // torch warns of what it lacks
  const int status = std::system(command.c_str());
  const std::string said = text_of(folder.file("out.txt"));
  ASSERT_EQ(status, 0) << said << text_of(folder.file("errors.txt"));
  std::string want;
  for (const auto& [name, tensor] : state) {
    const std::string raw = bytes_of(tensor);
    uint64_t sum = 0;
    for (size_t i = 0; i < raw.size(); ++i) sum += (i + 1) * static_cast<unsigned char>(raw[i]);
    const char* type = tensor.scalar_type() == at::kByte     ? "torch.uint8"
                       : tensor.scalar_type() == at::kDouble ? "torch.float64"
                                                             : "torch.int64";
    want += name + ":" + type + ":" + std::to_string(sum) + "\n";
  }
  EXPECT_EQ(said, want);
}

TEST(StateFile, OtherFilesAreRefusedByNameAndCause) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("state.pt");
  EXPECT_THAT(refusal_of(path), AllOf(HasSubstr(path), HasSubstr("No such file")));
  EXPECT_THAT(refusal_of(folder.path()), AllOf(HasSubstr(folder.path()), HasSubstr("folder")));
  write_text(path, "");
  EXPECT_THAT(refusal_of(path), AllOf(HasSubstr(path), HasSubstr("empty")));
  write_text(path, "to be or not to be");
  EXPECT_THAT(refusal_of(path), AllOf(HasSubstr(path), HasSubstr("of another kind")));

  const auto pickle = [&path](const c10::IValue& value) {
    const std::vector<char> bytes = torch::pickle_save(value);
    write_text(path, {bytes.data(), bytes.size()});
  };
  pickle(at::ones({3}));
  EXPECT_THAT(refusal_of(path), AllOf(HasSubstr(path), HasSubstr("not a dict")));
  c10::Dict<std::string, int64_t> numbers;
  numbers.insert("step", 200);
  pickle(numbers);
  EXPECT_THAT(refusal_of(path), AllOf(HasSubstr(path), HasSubstr("not names to tensors")));
}

TEST(StateFile, CutShortAnywhereIsRefused) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("state.pt");
  save_state(lived_state(), path);
  const std::string whole = text_of(path);
  for (size_t part = 0; part < 40; ++part) {
    write_text(path, whole.substr(0, part * whole.size() / 40));
    EXPECT_THAT(refusal_of(path), HasSubstr(path)) << part << " fortieths";
  }
  for (const size_t missing : {1, 2, 3, 21, 22, 23}) {
    write_text(path, whole.substr(0, whole.size() - missing));
    EXPECT_THAT(refusal_of(path), HasSubstr(path)) << missing << " bytes";
  }
}

TEST(StateFile, AFullDiskLeavesTheOneBeforeWhole) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("state.pt");
  const StateDict state = lived_state();
  save_state(state, path);
  StateDict larger = state;
  larger["more"] = at::ones({1 << 16}, at::kDouble);
  {
    const testing::FullDisk full(4096);
    try {
      save_state(larger, path);
      ADD_FAILURE() << "nothing was said";
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path), HasSubstr("too large")));
    }
  }
  expect_same(load_state(path), state);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    static_cast<void>(entry);
    ++files;
  }
  EXPECT_EQ(files, 1u) << "no part of a file stays";
  save_state(larger, path);
  expect_same(load_state(path), larger);
}

TEST(StateFile, AFolderThatIsMissingIsNamed) {
  try {
    save_state({}, "/no/such/folder/state.pt");
    FAIL() << "nothing was said";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("/no/such/folder/state.pt"), HasSubstr("No such file")));
  }
}

TEST(StateArchive, LiesInTheUsersOwnCheckpoint) {
  const StateDict state = lived_state();
  std::stringstream stream;
  {
    torch::serialize::OutputArchive archive;
    archive.write("weight", at::ones({3}));
    write_state(state, archive);
    archive.save_to(stream);
  }
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  expect_same(read_state(archive), state);
  at::Tensor weight;
  archive.read("weight", weight);
  EXPECT_TRUE(weight.equal(at::ones({3})));
}

TEST(StateArchive, ACheckpointWithoutAStateIsRefused) {
  std::stringstream stream;
  {
    torch::serialize::OutputArchive archive;
    archive.write("weight", at::ones({3}));
    archive.save_to(stream);
  }
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  try {
    static_cast<void>(read_state(archive));
    FAIL() << "there is no state";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'headscope'"));
  }
}

}  // namespace
}  // namespace headscope
