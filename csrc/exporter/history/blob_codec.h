#pragma once

#include <string>
#include <string_view>

#include "headscope/snapshot.h"

namespace headscope::exporter {

/// The figures of a snapshot as bytes: tokens, wall_time, loss, sink_any, sink_class and `heads`,
/// every double bit for bit. Little-endian on every machine; the layout is in docs/history.md.
std::string encode_figures(const Snapshot& snapshot);

/// The reverse: fills those fields. Throws std::runtime_error on bytes of another version,
/// truncated or with a rest.
void decode_figures(std::string_view bytes, Snapshot& snapshot);

}  // namespace headscope::exporter
