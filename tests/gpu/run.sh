#!/usr/bin/env bash
# Everything that a machine with one H200-class GPU is to show, in under six minutes once it is built:
# parity against double, compute-sanitizer, and rows 15 to 19 of the goals.
#   tests/gpu/run.sh [RESULTS_FOLDER]     default: build/cuda/gpu
# Prints one table and writes gpu.json there. Needs nvcc and a CUDA build of torch (HEADSCOPE_TORCH_DIR).
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=$ROOT/build/cuda
RESULTS=${1:-$BUILD/gpu}

command -v nvidia-smi >/dev/null && nvidia-smi -L >&2 || {
  echo "tests/gpu/run.sh: no GPU on this machine, nothing is measured" >&2
  exit 3
}
mkdir -p "$RESULTS"
[ -f "$BUILD/build.ninja" ] || cmake --preset cuda -S "$ROOT" -B "$BUILD" \
  ${HEADSCOPE_TORCH_DIR:+-DHEADSCOPE_TORCH_DIR=$HEADSCOPE_TORCH_DIR} >"$RESULTS/configure.log"
ninja -C "$BUILD" device_parity_test headscope_gpu_bench >&2

failed=0
echo "== parity against double"
"$BUILD/tests/bin/device_parity_test" --gtest_brief=1 --gtest_output="json:$RESULTS/parity.json" || failed=1

# The race checkers run a handful of shapes: they slow kernels a hundredfold.
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
few='Shapes/OnDevice.*/*bfloat16*:Shapes/OnDevice.*/*Float_b2*:OnDeviceEigenvalues.NotFiniteIsNaNAloneThere'
if [ -x "$sanitizer" ]; then
  for tool in memcheck racecheck synccheck; do
    echo "== compute-sanitizer $tool"
    timeout 90 "$sanitizer" --tool "$tool" --error-exitcode 9 --kernel-regex kns=headscope \
      "$BUILD/tests/bin/device_parity_test" --gtest_brief=1 --gtest_filter="$few" \
      >"$RESULTS/$tool.log" 2>&1 && tail -n 1 "$RESULTS/$tool.log" || {
      failed=1
      tail -n 20 "$RESULTS/$tool.log"
    }
  done
else
  echo "== compute-sanitizer is not installed: skipped"
fi

echo "== goals"
"$BUILD/bin/headscope_gpu_bench" --json "$RESULTS/gpu.json" || failed=1
exit $failed
