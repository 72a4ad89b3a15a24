#pragma once

#include <string>
#include <string_view>

#include "headscope/export.h"
#include "headscope/monitor.h"

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace headscope {

/// Writes a monitor's state to a file of its own, which Python's
/// `torch.load(path, weights_only=True)` reads as a dict of tensors.
///
/// Atomic: whenever the process or the machine dies, `path` holds the state before or this one,
/// whole. Throws std::runtime_error naming path and cause.
HEADSCOPE_API void save_state(const StateDict& state, const std::string& path);

/// Reads what save_state wrote, bit for bit. Throws std::runtime_error naming path and cause when
/// the file is missing, cut short or anything but a dict of tensors.
[[nodiscard]] HEADSCOPE_API StateDict load_state(const std::string& path);

/// The same inside a checkpoint of the user's own made with torch::save, under the key "headscope".
/// read_state throws std::runtime_error when the archive holds no state.
HEADSCOPE_API void write_state(const StateDict& state, torch::serialize::OutputArchive& archive);
[[nodiscard]] HEADSCOPE_API StateDict read_state(torch::serialize::InputArchive& archive);

/// Writes a file as save_state does: a temporary file beside `path`, fsync, rename, fsync of the
/// folder, so that `path` always holds the former bytes or these, whole. Throws std::runtime_error
/// naming path and cause.
HEADSCOPE_API void replace_durably(const std::string& path, std::string_view bytes);

}  // namespace headscope
