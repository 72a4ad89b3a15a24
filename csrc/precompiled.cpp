// The one source file that a target of precompiled headers needs (csrc/precompiled.cmake).
