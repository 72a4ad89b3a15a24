#include "csrc/exporter/page/page.h"

#include <cstdint>
#include <stdexcept>

namespace headscope::exporter {
namespace {

constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Base64 of bytes given as hexadecimal digits.
std::string base64_of_hex(std::string_view hex) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  uint32_t bits = 0;
  int count = 0;
  for (const char digit : hex) {
    bits = bits << 4 | static_cast<uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    count += 4;
    if (count < 6) continue;
    count -= 6;
    text += kDigits[bits >> count & 63];
  }
  if (count > 0) text += kDigits[bits << (6 - count) & 63];
  while (text.size() % 4 != 0) text += '=';
  return text;
}

const WebAsset& asset(std::string_view path) {
  const WebAsset* found = web_asset(path);
  if (found == nullptr) throw std::logic_error("no page asset " + std::string(path));
  return *found;
}

void replace_once(std::string& text, std::string_view what, const std::string& with) {
  const size_t at = text.find(what);
  if (at == std::string::npos) {
    throw std::logic_error("the page lacks " + std::string(what));
  }
  text.replace(at, what.size(), with);
}

/// JSON that may stand in a script element: no "<" in it, so neither its end nor a comment. Outside
/// strings JSON has none, inside them the escape is the same character.
std::string for_script(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

const WebAsset* web_asset(std::string_view path) {
  for (const WebAsset& candidate : kWebAssets) {
    if (candidate.path == path) return &candidate;
  }
  return nullptr;
}

HttpResponse page_response(const WebAsset& asset, const HttpRequest& request) {
  const std::string tag = '"' + std::string(asset.sha256.substr(0, 32)) + '"';
  HttpResponse response{200, std::string(asset.content_type), "", {}, {}};
  response.headers = {{"Content-Security-Policy", kPolicy},
                      {"Referrer-Policy", "no-referrer"},
                      {"X-Frame-Options", "DENY"},
                      {"Cache-Control", "no-cache"},
                      {"ETag", tag}};
  if (request.if_none_match == tag) {
    response.status = 304;
  } else {
    response.body = asset.text;
  }
  return response;
}

std::string self_contained_page(const std::string& data) {
  const WebAsset& style = asset("/app.css");
  const WebAsset& script = asset("/app.js");
  std::string page(asset("/").text);
  const std::string policy = "default-src 'none'; script-src 'sha256-" +
                             base64_of_hex(script.sha256) + "'; style-src 'sha256-" +
                             base64_of_hex(style.sha256) + "'; base-uri 'none'; form-action 'none'";
  replace_once(page, "<link rel=\"icon\" href=\"favicon.svg\">", "");
  replace_once(page, "<link rel=\"stylesheet\" href=\"app.css\">",
               "<meta http-equiv=\"Content-Security-Policy\" content=\"" + policy + "\">\n<style>" +
                   std::string(style.text) + "</style>");
  replace_once(page, "<script src=\"app.js\" defer></script>", "");
  replace_once(page, "</body>",
               "<script type=\"application/json\" id=\"recorded\">" + for_script(data) +
                   "</script>\n<script>" + std::string(script.text) + "</script>\n</body>");
  return page;
}

}  // namespace headscope::exporter
