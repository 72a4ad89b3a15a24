# headscope::torch: the installed torch as an imported target, for this build and, installed beside
# headscope-config.cmake, for its users. Tried in this order:
#   1. find_package(Torch), when Torch_DIR or CMAKE_PREFIX_PATH is given (variable or environment);
#   2. HEADSCOPE_TORCH_DIR, the folder of the torch package;
#   3. the torch of a Python: <project>/.venv if it is there, else the one CMake finds.
# 2 and 3 need no CUDA toolkit: they link the libraries of the wheel directly.
# Sets headscope_torch_version and headscope_torch_source, or headscope_torch_error: why there is none.

set(headscope_torch_error "")
set(torch_prefix_given FALSE)
foreach(hint IN ITEMS "${Torch_DIR}" "$ENV{Torch_DIR}" "${CMAKE_PREFIX_PATH}" "$ENV{CMAKE_PREFIX_PATH}")
  if(hint AND NOT hint MATCHES "-NOTFOUND$")
    set(torch_prefix_given TRUE)
  endif()
endforeach()
if(torch_prefix_given OR Torch_FOUND)
  find_package(Torch QUIET CONFIG)
endif()

# Sets `result` to the torch folder that `python` would import, or to an empty string.
function(headscope_ask_python python result)
  execute_process(
    COMMAND ${python} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s and s.submodule_search_locations else '')"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

if(NOT TARGET headscope::torch)  # found by an earlier find_package(headscope)
  add_library(headscope::torch INTERFACE IMPORTED)
endif()
set(torch_include "")

if(Torch_FOUND)
  # TORCH_CXX_FLAGS selects the C++ ABI of that build.
  separate_arguments(torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
  target_compile_options(headscope::torch INTERFACE ${torch_flags})
  target_include_directories(headscope::torch INTERFACE ${TORCH_INCLUDE_DIRS})
  target_link_libraries(headscope::torch INTERFACE ${TORCH_LIBRARIES})
  list(GET TORCH_INCLUDE_DIRS 0 torch_include)
  set(torch_source "find_package(Torch) in ${Torch_DIR}")
else()
  set(torch_folder "${HEADSCOPE_TORCH_DIR}")
  set(torch_source "HEADSCOPE_TORCH_DIR")
  if(NOT torch_folder AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
    headscope_ask_python(${PROJECT_SOURCE_DIR}/.venv/bin/python torch_folder)
    set(torch_source ".venv")
  endif()
  if(NOT torch_folder)
    find_package(Python3 QUIET COMPONENTS Interpreter)
    if(Python3_FOUND)
      headscope_ask_python(${Python3_EXECUTABLE} torch_folder)
      set(torch_source "${Python3_EXECUTABLE}")
    endif()
  endif()
  if(NOT EXISTS "${torch_folder}/lib/libtorch_cpu.so")
    set(headscope_torch_error
        "no torch found (looked at Torch_DIR, CMAKE_PREFIX_PATH, HEADSCOPE_TORCH_DIR='${HEADSCOPE_TORCH_DIR}', .venv and python3); pass -DHEADSCOPE_TORCH_DIR=<folder of the torch package>"
    )
    return()
  endif()
  set(torch_include "${torch_folder}/include")
  target_include_directories(headscope::torch INTERFACE ${torch_include}
                                                       ${torch_include}/torch/csrc/api/include)
  foreach(name IN ITEMS c10 torch_cpu c10_cuda torch_cuda)
    if(EXISTS ${torch_folder}/lib/lib${name}.so AND NOT TARGET headscope::imported_${name})
      add_library(headscope::imported_${name} SHARED IMPORTED)
      set_target_properties(headscope::imported_${name}
                            PROPERTIES IMPORTED_LOCATION ${torch_folder}/lib/lib${name}.so)
    endif()
  endforeach()
  target_link_libraries(headscope::torch INTERFACE headscope::imported_torch_cpu
                                                  headscope::imported_c10)
  if(TARGET headscope::imported_torch_cuda)
    # Kernels register from static initialisers, so nothing refers to the library by symbol; its own
    # RPATH finds the CUDA libraries of the wheel at run time, the linker need not.
    target_link_libraries(
      headscope::torch
      INTERFACE -Wl,--push-state,--no-as-needed headscope::imported_torch_cuda
                headscope::imported_c10_cuda -Wl,--pop-state -Wl,--allow-shlib-undefined)
  endif()
endif()

set(torch_version_header ${torch_include}/torch/headeronly/version.h)
if(NOT EXISTS ${torch_version_header})
  set(torch_version_header ${torch_include}/torch/csrc/api/include/torch/version.h)
endif()
file(STRINGS ${torch_version_header} torch_version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" torch_version "${torch_version_lines}")
list(JOIN torch_version "." headscope_torch_version)
set(headscope_torch_source "${torch_source}")
if(headscope_torch_version VERSION_LESS 2.8)
  set(headscope_torch_error
      "torch ${headscope_torch_version} (${torch_source}) is too old: headscope needs 2.8 or newer")
endif()
