#!/usr/bin/env bash
# headscope's one entry point: ./run.sh setup | demo | test | bench   (./run.sh --help)
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BUILD=$ROOT/build
TORCH_CPU=2.13.0   # pinned; used when python3 has no torch of its own
TORCH_CUDA=2.14.1  # the same with HEADSCOPE_CUDA=1
TORCH_LEAST=2.8

BUILD_PACKAGES=(g++ cmake ninja-build pkg-config python3 python3-venv prometheus-cpp-dev libcivetweb-dev
  libcli11-dev nlohmann-json3-dev libsqlite3-dev libgtest-dev libgmock-dev)
TEST_PACKAGES=(clang-format-14 curl git sqlite3)
PAGE_TEST_PACKAGES=(chromium fonts-dejavu-core)
PAGE_TEST_PYTHON=(playwright==1.65.2 schemathesis==4.32.5)

say() { printf '[run.sh] %s\n' "$*" >&2; }
die() {
  printf '[run.sh] error: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '         %s\n' "$line" >&2; done
  exit 1
}

usage() {
  cat <<'EOF'
./run.sh setup                 install what is missing, find or install torch, build everything
./run.sh demo [ARGS]           train the demo with the monitor attached; --help lists ARGS
./run.sh test [--long] [--label LABEL]...
                               build and run the tests; labels: unit parity exporter plugin e2e consumer lint
./run.sh bench [ARGS]          build and run the benchmarks

Each does all the set-up it needs and is quick when nothing has changed.

Environment
  HEADSCOPE_CUDA=1             use a CUDA build of torch
  HEADSCOPE_TORCH_DIR=DIR      use this torch (folder of the package, with include/ and lib/)
  PYTHON=python3               the Python whose torch is used if it is new enough
EOF
}

# ---------------------------------------------------------------- system packages

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s\n' "$package"
  done
}

need_packages() {
  if ! command -v dpkg-query >/dev/null; then
    command -v cmake >/dev/null && command -v ninja >/dev/null && command -v c++ >/dev/null ||
      die "cmake, ninja and a C++20 compiler are needed, and this system has no apt" \
        "install them and the equivalents of: $*"
    return
  fi
  local missing sudo=()
  mapfile -t missing < <(missing_packages "$@")
  # cmake and ninja may come from elsewhere, e.g. pip.
  local wanted=() package
  for package in "${missing[@]}"; do
    case $package in
      cmake) command -v cmake >/dev/null || wanted+=("$package") ;;
      ninja-build) command -v ninja >/dev/null || wanted+=("$package") ;;
      python3 | python3-venv) has_venv || wanted+=("$package") ;;
      *) wanted+=("$package") ;;
    esac
  done
  [ ${#wanted[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || die "system packages are missing and there is no passwordless sudo; run" \
      "sudo apt-get update && sudo apt-get install -y --no-install-recommends ${wanted[*]}"
    sudo=(sudo -n)
  fi
  say "installing ${wanted[*]}"
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}")
  mkdir -p "$BUILD"
  # A fresh image has no package lists and an old one stale ones: fetch them only when the first try fails.
  "${sudo[@]}" "${install[@]}" >"$BUILD/apt.log" 2>&1 ||
    { "${sudo[@]}" apt-get update -qq >>"$BUILD/apt.log" 2>&1 &&
      "${sudo[@]}" "${install[@]}" >>"$BUILD/apt.log" 2>&1; } ||
    die "apt-get could not install ${wanted[*]}" "$(tail -n 3 "$BUILD/apt.log")" \
      "is the network there? the whole log: $BUILD/apt.log"
}

has_venv() { "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null; }

need_compiler() {
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" = 3.25 ] ||
    die "cmake $version is too old: 3.25 or newer is needed" \
      "${PYTHON:-python3} -m pip install --user 'cmake>=3.25' gives one; put it on PATH"
}

# promtool alone is taken from the Debian package: installing that would start a Prometheus server.
need_promtool() {
  export PATH=$BUILD/tools/usr/bin:$PATH
  command -v promtool >/dev/null && return
  say "fetching promtool"
  local folder=$BUILD/tools
  mkdir -p "$folder"
  if (cd "$folder" && { apt-get download -qq prometheus || { [ "$(id -u)" = 0 ] && apt-get update -qq &&
    apt-get download -qq prometheus; }; } && dpkg-deb -x prometheus_*.deb unpacked) >"$BUILD/apt.log" 2>&1; then
    install -D "$folder/unpacked/usr/bin/promtool" "$folder/usr/bin/promtool"
    rm -rf "$folder"/prometheus_*.deb "$folder/unpacked"
  else
    [ -z "${CI:-}" ] || die "promtool could not be fetched" "$(tail -n 2 "$BUILD/apt.log")"
    say "promtool could not be fetched; the tests that need it will be skipped"
  fi
}

# A browser and what drives it, for the tests of the page and its API (tests/e2e/browser.py). CI needs them; elsewhere
# the tests skip what is not there.
need_browser() {
  local folder=$BUILD/tools/page stamp
  stamp=$folder/${PAGE_TEST_PYTHON[*]}
  stamp=${stamp// /-}
  if [ -n "${CI:-}" ]; then
    need_packages "${PAGE_TEST_PACKAGES[@]}"
  elif ! command -v chromium >/dev/null; then
    say "no chromium: the tests of the page will be skipped (Debian package chromium)"
    return
  fi
  [ -f "$stamp" ] && return
  say "installing ${PAGE_TEST_PYTHON[*]} into build/tools/page"
  rm -rf "$folder"
  if "${PYTHON:-python3}" -m venv "$folder" >&2 &&
    "$folder/bin/python" -m pip install -q --disable-pip-version-check "${PAGE_TEST_PYTHON[@]}" >&2; then
    touch "$stamp"
  else
    rm -rf "$folder"
    [ -z "${CI:-}" ] || die "pip could not install ${PAGE_TEST_PYTHON[*]} (its message is above)"
    say "they could not be installed; the tests that need them will be skipped"
  fi
}

# ---------------------------------------------------------------- torch

# Prints the folder of an importable torch that is new enough, with a CUDA library when that is asked for.
torch_of() {
  "$1" - "$TORCH_LEAST" "${HEADSCOPE_CUDA:-0}" <<'EOF' 2>/dev/null
import os, re, sys
import torch
folder = os.path.dirname(torch.__file__)
def number(text):
    return [int(part) for part in re.findall(r"\d+", text)[:2]]
wanted = "libtorch_cuda.so" if sys.argv[2] == "1" else "libtorch_cpu.so"
if number(torch.__version__) < number(sys.argv[1]) or not os.path.exists(os.path.join(folder, "lib", wanted)):
    sys.exit(1)
print(folder)
EOF
}

need_torch() {
  local stamp=$BUILD/torch.stamp wanted="${HEADSCOPE_CUDA:-0} ${HEADSCOPE_TORCH_DIR:-} ${PYTHON:-python3}"
  if [ -f "$stamp" ] && [ "$(sed -n 1p "$stamp")" = "$wanted" ] && [ -f "$(sed -n 2p "$stamp")/lib/libtorch_cpu.so" ]; then
    TORCH_DIR=$(sed -n 2p "$stamp")
    return
  fi
  if [ -n "${HEADSCOPE_TORCH_DIR:-}" ]; then
    TORCH_DIR=$HEADSCOPE_TORCH_DIR
    [ -f "$TORCH_DIR/lib/libtorch_cpu.so" ] || die "HEADSCOPE_TORCH_DIR '$TORCH_DIR' has no lib/libtorch_cpu.so" \
      "give the folder of the torch package, e.g. .../site-packages/torch"
  else
    TORCH_DIR=$(torch_of "${PYTHON:-python3}") || TORCH_DIR=$(torch_of "$ROOT/.venv/bin/python") || install_torch
  fi
  say "torch: $TORCH_DIR"
  mkdir -p "$BUILD"
  printf '%s\n%s\n' "$wanted" "$TORCH_DIR" >"$stamp"
}

install_torch() {
  local version=$TORCH_CPU space_gb=3 free_kb
  if [ "${HEADSCOPE_CUDA:-0}" = 1 ]; then version=$TORCH_CUDA space_gb=9; fi
  free_kb=$(df -Pk "$ROOT" | awk 'NR == 2 { print $4 }')
  [ "$free_kb" -ge $((space_gb * 1024 * 1024)) ] ||
    die "torch $version needs about $space_gb GB and $ROOT has $((free_kb / 1024)) MB left" "free some space"
  say "installing torch $version into .venv (once; some minutes)"
  "${PYTHON:-python3}" -m venv "$ROOT/.venv" >&2 ||
    die "no virtual environment could be made" "sudo apt-get install python3-venv"
  local quiet=(-q)
  [ ! -t 2 ] || quiet=()
  "$ROOT/.venv/bin/python" -m pip install "${quiet[@]}" --disable-pip-version-check "torch==$version" >&2 ||
    die "pip could not install torch==$version (its message is above)" \
      "is the network there? behind a proxy or mirror set PIP_INDEX_URL; or point HEADSCOPE_TORCH_DIR at a torch"
  TORCH_DIR=$(torch_of "$ROOT/.venv/bin/python") || die "torch $version was installed but cannot be imported" \
    "$("$ROOT/.venv/bin/python" -c 'import torch' 2>&1 | tail -n 1)"
}

# ---------------------------------------------------------------- build

# One compile a core, but not more than fit into memory at 2 GB each.
parallel_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ { print int($2 / 2097152) }' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}

# configure PRESET FOLDER
configure() {
  # New compilers warn of new things: only CI's own makes them errors.
  local werror=OFF
  if [ -n "${CI:-}" ] || [ "$(c++ -dumpversion | cut -d. -f1)" = 12 ]; then werror=ON; fi
  local arguments=(--preset "$1" "-DHEADSCOPE_TORCH_DIR=$TORCH_DIR" "-DHEADSCOPE_WERROR=$werror")
  local stamp=$2/configure.stamp
  [ -f "$2/build.ninja" ] && [ "$(cat "$stamp" 2>/dev/null)" = "${arguments[*]}" ] && return
  say "configuring ($1)"
  mkdir -p "$2"
  (cd "$ROOT" && cmake "${arguments[@]}") >"$2/configure.log" 2>&1 ||
    { cat "$2/configure.log" >&2; die "cmake could not configure the build (its output is above)"; }
  printf '%s\n' "${arguments[*]}" >"$stamp"
}

# build_targets FOLDER TARGET...
build_targets() {
  local folder=$1
  shift
  say "building $* in ${folder#"$ROOT"/}"
  ninja -C "$folder" -j "$(parallel_jobs)" "$@" >&2 || die "the build failed (the compiler's output is above)"
}

prepare() {
  need_packages "${BUILD_PACKAGES[@]}" "$@"
  need_compiler
  need_torch
  configure release "$BUILD"
}

# ---------------------------------------------------------------- commands

command_setup() {
  prepare "${TEST_PACKAGES[@]}"
  need_promtool
  build_targets "$BUILD" all
  say "ready: ./run.sh demo"
}

command_demo() {
  prepare
  build_targets "$BUILD" attention_only_lm headscope_cli
  export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}
  exec "$BUILD/bin/attention_only_lm" "$@"
}

command_bench() {
  prepare
  build_targets "$BUILD" headscope_bench
  export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}
  exec "$BUILD/bin/headscope_bench" "$@"
}

command_test() {
  local labels=() started=$SECONDS
  while [ $# -gt 0 ]; do
    case $1 in
      --long) export HEADSCOPE_LONG=1 ;;
      --label)
        [ $# -gt 1 ] || die "--label needs a value" "unit, parity, exporter, plugin, e2e, consumer or lint"
        labels+=("$2")
        shift
        ;;
      *) die "unknown argument '$1' of ./run.sh test" "./run.sh --help" ;;
    esac
    shift
  done
  prepare "${TEST_PACKAGES[@]}"
  need_promtool
  if [[ ${#labels[@]} -eq 0 || " ${labels[*]} " == *" e2e "* ]]; then need_browser; fi
  local summary=("$ROOT/tests/summary.py" --ledger "$ROOT/docs/ci.md" --seconds "set-up=$((SECONDS - started))")
  local lap=$SECONDS failed=0
  build_targets "$BUILD" all
  summary+=(--seconds "build=$((SECONDS - lap))")
  run_ctest "$BUILD" "${labels[@]}" || failed=1
  summary+=("$BUILD")

  # Once more under the sanitizers, which compile only what they test.
  if [ -n "${HEADSCOPE_LONG:-}" ]; then
    sanitised dev asan unit exporter plugin
    sanitised tsan tsan exporter plugin
  else
    sanitised dev asan unit exporter
  fi
  "${PYTHON:-python3}" "${summary[@]}" || failed=1
  return $failed
}

# sanitised PRESET NAME LABEL...: part of command_test; labels given by hand narrow it too.
sanitised() {
  local preset=$1 name=$2 checked=() label lap=$SECONDS
  shift 2
  for label in "$@"; do
    [[ ${#labels[@]} -eq 0 || " ${labels[*]} " == *" $label "* ]] && checked+=("$label")
  done
  [ ${#checked[@]} -gt 0 ] || return 0
  configure "$preset" "$BUILD/$preset"
  build_targets "$BUILD/$preset" "${checked[@]/#/headscope_tests_}"
  summary+=(--seconds "$name build=$((SECONDS - lap))")
  run_ctest "$BUILD/$preset" "${checked[@]}" || failed=1
  summary+=("$name=$BUILD/$preset")
}

# run_ctest FOLDER [LABEL...]: results go to FOLDER/tests/results, where summary.py reads them.
run_ctest() {
  local folder=$1 filter=()
  shift
  [ $# -eq 0 ] || filter=(-L "^($(IFS='|'; echo "$*"))\$")
  rm -rf "$folder/tests/results"
  mkdir -p "$folder/tests/results"
  (cd "$folder" && ctest --output-on-failure --no-tests=error -j "$(nproc)" "${filter[@]}" \
    --test-output-size-passed 100000 --output-junit "$folder/tests/results/ctest.junit")
}

main() {
  local command=${1:-}
  [ $# -eq 0 ] || shift
  case $command in
    setup | demo | test | bench) "command_$command" "$@" ;;
    -h | --help | help) usage ;;
    "") usage >&2; exit 2 ;;
    *) die "unknown command '$command'" "setup, demo, test or bench; ./run.sh --help" ;;
  esac
}

main "$@"
