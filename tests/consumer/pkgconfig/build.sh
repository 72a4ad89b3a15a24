#!/usr/bin/env bash
# build.sh SOURCE OUTPUT TORCH: with headscope.pc on PKG_CONFIG_PATH; TORCH is the folder of the torch package.
set -euo pipefail
source=$1 output=$2 torch=$3
read -ra flags <<<"$(pkg-config --define-variable=torchdir="$torch" --cflags --libs headscope)"
libdir=$(pkg-config --variable=libdir headscope)
${CXX:-c++} -std=c++20 -O0 "$source" -o "$output" "${flags[@]}" "-Wl,-rpath,$libdir" "-Wl,-rpath,$torch/lib"
