# Included at the top: a language belongs to the folder that links it, and all folders need the stems.
include(${CMAKE_CURRENT_LIST_DIR}/stems.cmake)

find_program(HEADSCOPE_NVCC nvcc PATHS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin
             DOC "CUDA compiler for kernels/")
set(found OFF)
if(HEADSCOPE_NVCC)
  set(found ON)
endif()
option(HEADSCOPE_CUDA_KERNELS "Compile the CUDA kernels; needs nvcc, no GPU" ${found})
option(HEADSCOPE_CUDA_ONE_ARCHITECTURE "Compile the CUDA kernels for sm_90 alone, without CMAKE_CUDA_ARCHITECTURES" OFF)
if(HEADSCOPE_CUDA_KERNELS)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${HEADSCOPE_NVCC})
  endif()
  # One runtime in the process: torch's.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  # The sources are the same for all architectures, so that one shows whether they compile: sm_90, on which
  # device_parity_test and the goals of tests/gpu are run. What the others differ in is what ptxas makes of them.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND HEADSCOPE_CUDA_ONE_ARCHITECTURE)
    set(CMAKE_CUDA_ARCHITECTURES 90-real)
  elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)  # and PTX of the last for what comes after
  endif()
  enable_language(CUDA)
endif()
