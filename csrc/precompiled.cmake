# headscope_precompiled(<name> HEADERS <header>... [LIBS <target>...]): a set of headers, compiled once for all
# targets that say
#   target_precompile_headers(<target> REUSE_FROM <name>)
# and that are compiled with the same options. headscope_std is for torch-free targets, headscope_aten for those
# that see tensors (ATen/ATen.h: 14 s a file, 2.6 s precompiled), headscope_nn for those that see modules.
function(headscope_precompiled name)
  cmake_parse_arguments(arg "" "" "HEADERS;LIBS" ${ARGN})
  add_library(${name} OBJECT ${PROJECT_SOURCE_DIR}/csrc/precompiled.cpp)
  target_link_libraries(${name} PUBLIC headscope_options ${arg_LIBS})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()

set(headscope_std_headers <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <deque> <functional>
                          <limits> <map> <memory> <mutex> <optional> <set> <span> <stdexcept> <string> <string_view>
                          <thread> <tuple> <utility> <vector>)
