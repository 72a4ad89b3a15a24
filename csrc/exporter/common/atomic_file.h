#pragma once

#include <string>

namespace headscope::exporter {

/// Replaces the file at `path` in one step: readers see the old text or the new, never a part. For
/// what a later text replaces soon: nothing is synced, so a power cut may leave neither. Throws
/// std::runtime_error that names path and cause.
void replace_atomically(const std::string& path, const std::string& text);

}  // namespace headscope::exporter
