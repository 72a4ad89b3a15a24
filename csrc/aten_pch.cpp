// Owner of the precompiled ATen header that other targets reuse; it needs one source file.
