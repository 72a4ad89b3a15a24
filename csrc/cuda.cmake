# headscope_cuda_libraries: what csrc/measure/cuda links beside a CUDA build of torch: the runtime,
# cuBLAS and cuSOLVER. The toolkit's where it has them, else the copies that the torch package brings
# along (site-packages/nvidia/cu<major>: versioned file names, no links to them).
find_package(CUDAToolkit REQUIRED)
add_library(headscope_cuda_libraries INTERFACE)
target_link_libraries(headscope_cuda_libraries INTERFACE CUDA::cudart)

get_filename_component(site_packages "${torch_include}/../.." ABSOLUTE)
set(cuda_wheel ${site_packages}/nvidia/cu${CUDAToolkit_VERSION_MAJOR})
# torch's headers ask for more of them than are used here. After the system's own: the toolkit's
# runtime headers must win over the copies.
if(EXISTS ${cuda_wheel}/include)
  target_compile_options(headscope_cuda_libraries
                         INTERFACE $<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${cuda_wheel}/include>)
endif()
foreach(name IN ITEMS cublas cusolver)
  if(TARGET CUDA::${name})
    target_link_libraries(headscope_cuda_libraries INTERFACE CUDA::${name})
    continue()
  endif()
  file(GLOB library "${cuda_wheel}/lib/lib${name}.so.[0-9]*")
  if(NOT library)
    message(FATAL_ERROR "lib${name} was found neither in the CUDA toolkit ${CUDAToolkit_VERSION} nor in "
                        "${cuda_wheel}/lib; install the toolkit's ${name}, or pass -DHEADSCOPE_CUDA=OFF")
  endif()
  list(GET library 0 library)
  # What that library needs in turn is found through its own RPATH at run time.
  target_link_libraries(headscope_cuda_libraries INTERFACE ${library} -Wl,--allow-shlib-undefined)
endforeach()
