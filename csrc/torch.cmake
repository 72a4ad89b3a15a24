# headscope_torch: the installed torch as an imported target. Tried in this order:
#   1. find_package(Torch), when Torch_DIR or CMAKE_PREFIX_PATH is given (variable or environment);
#   2. HEADSCOPE_TORCH_DIR, the folder of the torch package;
#   3. the torch of a Python: <project>/.venv if it is there, else the one CMake finds.
# 2 and 3 need no CUDA toolkit: they link the libraries of the wheel directly.

add_library(headscope_torch INTERFACE)

set(torch_prefix_given FALSE)
foreach(hint IN ITEMS "${Torch_DIR}" "$ENV{Torch_DIR}" "${CMAKE_PREFIX_PATH}" "$ENV{CMAKE_PREFIX_PATH}")
  if(hint AND NOT hint MATCHES "-NOTFOUND$")
    set(torch_prefix_given TRUE)
  endif()
endforeach()
if(torch_prefix_given)
  find_package(Torch QUIET CONFIG)
endif()

# Sets `result` to the torch folder that `python` would import, or to an empty string.
function(headscope_ask_python python result)
  execute_process(
    COMMAND ${python} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s and s.submodule_search_locations else '')"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

if(Torch_FOUND)
  # TORCH_CXX_FLAGS selects the C++ ABI of that build.
  separate_arguments(torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
  target_compile_options(headscope_torch INTERFACE ${torch_flags})
  target_include_directories(headscope_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  target_link_libraries(headscope_torch INTERFACE ${TORCH_LIBRARIES})
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
    message(
      FATAL_ERROR
        "no torch found (looked at Torch_DIR, CMAKE_PREFIX_PATH, HEADSCOPE_TORCH_DIR='${HEADSCOPE_TORCH_DIR}', "
        ".venv and python3). Run ./run.sh setup, or pass -DHEADSCOPE_TORCH_DIR=<folder of the torch package>.")
  endif()
  set(torch_include "${torch_folder}/include")
  target_include_directories(headscope_torch SYSTEM
                             INTERFACE ${torch_include} ${torch_include}/torch/csrc/api/include)
  foreach(name IN ITEMS c10 torch_cpu c10_cuda torch_cuda)
    if(EXISTS ${torch_folder}/lib/lib${name}.so)
      add_library(headscope_${name}_imported SHARED IMPORTED)
      set_target_properties(headscope_${name}_imported
                            PROPERTIES IMPORTED_LOCATION ${torch_folder}/lib/lib${name}.so)
    endif()
  endforeach()
  target_link_libraries(headscope_torch INTERFACE headscope_torch_cpu_imported
                                                  headscope_c10_imported)
  if(TARGET headscope_torch_cuda_imported)
    # Kernels register from static initialisers, so nothing refers to the library by symbol; its own
    # RPATH finds the CUDA libraries of the wheel at run time, the linker need not.
    target_link_libraries(
      headscope_torch
      INTERFACE -Wl,--push-state,--no-as-needed headscope_torch_cuda_imported
                headscope_c10_cuda_imported -Wl,--pop-state -Wl,--allow-shlib-undefined)
  endif()
endif()

set(torch_version_header ${torch_include}/torch/headeronly/version.h)
if(NOT EXISTS ${torch_version_header})
  set(torch_version_header ${torch_include}/torch/csrc/api/include/torch/version.h)
endif()
file(STRINGS ${torch_version_header} torch_version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" torch_version "${torch_version_lines}")
list(JOIN torch_version "." torch_version)
if(torch_version VERSION_LESS 2.8)
  message(FATAL_ERROR "torch ${torch_version} (${torch_source}) is too old: headscope needs 2.8 or newer")
endif()
message(STATUS "torch ${torch_version} from ${torch_source}")

# ATen/ATen.h costs 14 s a file and 2.6 s precompiled: users say
#   target_precompile_headers(<target> REUSE_FROM headscope_aten_pch)
add_library(headscope_aten_pch OBJECT ${CMAKE_CURRENT_LIST_DIR}/aten_pch.cpp)
target_link_libraries(headscope_aten_pch PUBLIC headscope_options headscope_torch)
target_precompile_headers(headscope_aten_pch PRIVATE <ATen/ATen.h>)
