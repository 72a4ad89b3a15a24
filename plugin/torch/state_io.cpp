#include "headscope/state_io.h"

#include <ATen/core/Dict.h>
#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

namespace headscope {
namespace {

constexpr const char* kArchiveKey = "headscope";

/// Closes a file descriptor when it goes.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

/// False with errno set.
bool write_and_sync(const std::string& path, std::string_view bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  return file.number() >= 0 && write_all(file.number(), bytes) && ::fsync(file.number()) == 0 &&
         file.close();
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

/// Some file systems cannot sync a folder: the rename is then as lasting as they make it.
void sync_folder(const std::string& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.number() >= 0) ::fsync(descriptor.number());
}

std::vector<char> read_file(const std::string& path) {
  const auto refuse = [&path](const char* cause) {
    throw std::runtime_error("headscope: cannot read the state " + path + ": " + cause);
  };
  if (std::filesystem::is_directory(path)) refuse("it is a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(std::strerror(errno));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The end record of a zip archive; torch's reader is content with a part of it.
bool ends_as_archive(const std::vector<char>& bytes) {
  constexpr size_t kEndRecord = 22;
  return bytes.size() >= kEndRecord &&
         std::string_view(bytes.data() + bytes.size() - kEndRecord, 4) == "PK\5\6";
}

c10::Dict<std::string, at::Tensor> to_dict(const StateDict& state) {
  c10::Dict<std::string, at::Tensor> dict;
  for (const auto& [name, tensor] : state) dict.insert(name, tensor);
  return dict;
}

/// What torch::pickle_save writes, but for its type tags, which weights_only refuses.
std::string pickled(const c10::IValue& value) {
  std::string file, pickle;
  caffe2::serialize::PyTorchStreamWriter writer([&file](const void* data, size_t size) {
    file.append(static_cast<const char*>(data), size);
    return size;
  });
  torch::jit::Pickler pickler(
      [&pickle](const char* data, size_t size) { pickle.append(data, size); }, nullptr, nullptr,
      nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  size_t number = 0;
  for (const at::Tensor& tensor : pickler.tensorData()) {
    const auto data = torch::jit::getWriteableTensorData(tensor);
    writer.writeRecord("data/" + std::to_string(number++), data.data(), data.sizeInBytes());
  }
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeEndOfFile();
  return file;
}

/// Throws std::runtime_error saying what the value is instead.
StateDict from_value(const c10::IValue& value) {
  if (!value.isGenericDict())
    throw std::runtime_error("it holds a " + value.tagKind() + ", not a dict of tensors");
  StateDict state;
  for (const auto& entry : value.toGenericDict()) {
    if (!entry.key().isString() || !entry.value().isTensor())
      throw std::runtime_error("its dict maps a " + entry.key().tagKind() + " to a " +
                               entry.value().tagKind() + ", not names to tensors");
    state[entry.key().toStringRef()] = entry.value().toTensor();
  }
  return state;
}

}  // namespace

void replace_durably(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".tmp" + std::to_string(getpid());
  if (write_and_sync(temporary, bytes) && std::rename(temporary.c_str(), path.c_str()) == 0) {
    sync_folder(folder_of(path));
    return;
  }
  const int error = errno;
  ::unlink(temporary.c_str());
  throw std::runtime_error("headscope: cannot write " + path + ": " + std::strerror(error));
}

void save_state(const StateDict& state, const std::string& path) {
  replace_durably(path, pickled(to_dict(state)));
}

StateDict load_state(const std::string& path) {
  const std::vector<char> bytes = read_file(path);
  const auto refuse = [&path](const std::string& cause) {
    throw std::runtime_error("headscope: " + path + " is no monitor state: " + cause);
  };
  if (bytes.empty()) refuse("the file is empty");
  if (!ends_as_archive(bytes)) refuse("the file is cut short or of another kind");
  try {
    return from_value(torch::pickle_load(bytes));
  } catch (const c10::Error& error) {
    // Torch's words for a broken file span many lines; the first says what is wrong.
    const std::string words = error.what_without_backtrace();
    refuse("the file is broken or of another kind (" + words.substr(0, words.find('\n')) + ")");
  } catch (const std::exception& error) {
    refuse(error.what());
  }
  return {};
}

void write_state(const StateDict& state, torch::serialize::OutputArchive& archive) {
  archive.write(kArchiveKey, c10::IValue(to_dict(state)));
}

StateDict read_state(torch::serialize::InputArchive& archive) {
  c10::IValue value;
  if (!archive.try_read(kArchiveKey, value))
    throw std::runtime_error(std::string("headscope: the checkpoint has no entry '") + kArchiveKey +
                             "': no monitor's state was written into it");
  try {
    return from_value(value);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string("headscope: the checkpoint's entry '") + kArchiveKey +
                             "' is no monitor state: " + error.what());
  }
}

}  // namespace headscope
