#pragma once

#include <cstddef>  // of libstdc++: says which std::string the compiler is told to use

/// Stands on every function of the public headers that libheadscope.so implements, and on the
/// classes with virtual functions that it shares with the host. Everything else in the library is
/// hidden (docs/packaging.md).
#define HEADSCOPE_API __attribute__((visibility("default")))

#if defined(__GLIBCXX__) && !_GLIBCXX_USE_CXX11_ABI
#error headscope and torch 2.8 and newer have the C++11 std::string: \
    compile with -D_GLIBCXX_USE_CXX11_ABI=1 (docs/packaging.md)
#endif
