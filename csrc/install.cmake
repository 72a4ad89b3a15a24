# What `cmake --install` puts into a prefix: headers, library, command, and what CMake and pkg-config
# need to find them. Nothing of it names a folder of the build, so the prefix may be moved.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/headscope)
set(templates ${CMAKE_CURRENT_LIST_DIR}/package)
set(generated ${PROJECT_BINARY_DIR}/package)

# The host's own path to torch finds torch; the library adds none.
set_target_properties(headscope PROPERTIES INSTALL_RPATH "$ORIGIN" INSTALL_REMOVE_ENVIRONMENT_RPATH ON)
set_target_properties(headscope_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}"
                                               INSTALL_REMOVE_ENVIRONMENT_RPATH ON)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/headscope DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(TARGETS headscope EXPORT headscope-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET headscope_openssl3)
  install(TARGETS headscope_openssl3 LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(TARGETS headscope_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/headscope)

install(EXPORT headscope-targets NAMESPACE headscope:: DESTINATION ${package_folder})
configure_package_config_file(${templates}/headscope-config.cmake.in ${generated}/headscope-config.cmake
                              INSTALL_DESTINATION ${package_folder})
# As the soname says: a minor version may break before 1.0.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
else()
  set(compatibility SameMajorVersion)
endif()
write_basic_package_version_file(${generated}/headscope-config-version.cmake
                                 COMPATIBILITY ${compatibility})
install(FILES ${generated}/headscope-config.cmake ${generated}/headscope-config-version.cmake
        DESTINATION ${package_folder})
install(FILES ${CMAKE_CURRENT_LIST_DIR}/torch.cmake DESTINATION ${package_folder}
        RENAME headscope-torch.cmake)

# pkg-config knows the prefix by where the file lies.
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" prefix_from_pc "${prefix_from_pc}")
set(pc_torch_libs "-ltorch_cpu -lc10")
get_target_property(torch_links headscope::torch INTERFACE_LINK_LIBRARIES)
if(torch_links MATCHES "torch_cuda")
  string(APPEND pc_torch_libs
         " -Wl,--no-as-needed -ltorch_cuda -lc10_cuda -Wl,--as-needed -Wl,--allow-shlib-undefined")
endif()
configure_file(${templates}/headscope.pc.in ${generated}/headscope.pc @ONLY)
install(FILES ${generated}/headscope.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
