#pragma once

#include <array>
#include <string>
#include <string_view>

#include "csrc/exporter/http/http_server.h"

namespace headscope::exporter {

/// A file of the page, embedded when the library was built (web/embed.cmake).
struct WebAsset {
  std::string_view path;  ///< as in the URL, "/app.js"
  std::string_view content_type;
  std::string_view text;
  std::string_view sha256;  ///< 64 hexadecimal digits
};

extern const std::array<WebAsset, 4> kWebAssets;

/// The asset of a path, or nothing.
const WebAsset* web_asset(std::string_view path);

/// The answer to a GET of an asset: with a policy that lets the page load nothing from elsewhere
/// and run nothing inline, and revalidated by content.
HttpResponse page_response(const WebAsset& asset, const HttpRequest& request);

/// The page as one file that needs no server, with `data` (a JSON document) in it.
std::string self_contained_page(const std::string& data);

}  // namespace headscope::exporter
