#include "csrc/exporter/landing_page.h"

#include "csrc/exporter/sanitise.h"
#include "headscope/version.h"

namespace headscope::exporter {

std::string landing_page(const RunFacts& facts, const Snapshot* latest) {
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>headscope</title>\n"
      "<style>body{font-family:sans-serif;margin:2em}td{padding:0 1em 0 0}</style></head><body>\n"
      "<h1>headscope " HEADSCOPE_VERSION "</h1>\n<p><a href=\"/metrics\">metrics</a></p>\n<p>";
  page += latest ? "step " + std::to_string(latest->step) : std::string("no measurement yet");
  page += "</p>\n<table>\n";
  for (const auto& [name, value] : facts) {
    page += "<tr><td>" + escape_html(name) + "</td><td>" + escape_html(value) + "</td></tr>\n";
  }
  return page + "</table></body></html>\n";
}

}  // namespace headscope::exporter
