#pragma once

namespace headscope::testing {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

/// Some sanitizer makes this build slow and large.
inline constexpr bool kSanitized = kThreadSanitizer || kAddressSanitizer;

}  // namespace headscope::testing
