#pragma once

#include <string>

#include "headscope/sinks.h"

namespace headscope::exporter {

/// The page at "/": the facts of the run, the step of `latest` (null: none yet) and a link to
/// /metrics.
std::string landing_page(const RunFacts& facts, const Snapshot* latest);

/// Content-Security-Policy that allows the page nothing but its own inline style.
inline constexpr char kPagePolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'";

}  // namespace headscope::exporter
