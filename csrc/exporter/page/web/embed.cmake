# Writes the page's files into a C++ source: cmake -DMODULES=a.js;b.js -DOUTPUT=FILE -P embed.cmake
# The modules become one classic script, in the order given: their imports and the word "export" go,
# so every top-level name must be there once.
set(web ${CMAKE_CURRENT_LIST_DIR})
get_filename_component(folder ${OUTPUT} DIRECTORY)

file(READ ${web}/vendor/uplot/uPlot.iife.min.js script)
string(APPEND script "\n(() => {\n\"use strict\";\n")
foreach(module IN LISTS MODULES)
  file(READ ${web}/${module} text)
  string(REGEX REPLACE "(^|\n)import [^\n]*" "\\1" text "${text}")
  string(REGEX REPLACE "(^|\n)export " "\\1" text "${text}")
  string(APPEND script "${text}")
endforeach()
string(APPEND script "})();\n")
if(script MATCHES "</[sS][cC][rR][iI][pP][tT]|<!--")
  message(FATAL_ERROR "the script holds text that would end it inside a page")
endif()
file(WRITE ${folder}/app.js "${script}")

file(READ ${web}/vendor/uplot/uPlot.min.css style)
file(READ ${web}/app.css own_style)
file(WRITE ${folder}/app.css "${style}\n${own_style}")

set(arrays "")
set(table "")
function(embed name path type file)
  file(READ ${file} bytes HEX)
  file(SHA256 ${file} sha256)
  string(LENGTH "${bytes}" length)
  math(EXPR length "${length} / 2")
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
  string(REGEX REPLACE "((.......){24})" "\\1\n" bytes "${bytes}")
  set(arrays "${arrays}const char k${name}[] = {\n${bytes}};\n" PARENT_SCOPE)
  set(table "${table}    {\"${path}\", \"${type}\", {k${name}, ${length}}, \"${sha256}\"},\n" PARENT_SCOPE)
endfunction()
embed(Index "/" "text/html; charset=utf-8" ${web}/index.html)
embed(Style "/app.css" "text/css; charset=utf-8" ${folder}/app.css)
embed(Script "/app.js" "text/javascript; charset=utf-8" ${folder}/app.js)
embed(Icon "/favicon.svg" "image/svg+xml" ${web}/favicon.svg)

file(WRITE ${OUTPUT} "// Written by csrc/exporter/page/web/embed.cmake.
#include \"csrc/exporter/page/page.h\"

namespace headscope::exporter {
namespace {
${arrays}
}  // namespace

const std::array<WebAsset, 4> kWebAssets{{
${table}}};

}  // namespace headscope::exporter
")
