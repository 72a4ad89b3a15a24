#!/usr/bin/env bash
# headscope's one entry point: ./run.sh setup | demo | test | bench   (./run.sh --help)
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BUILD=$ROOT/build
TORCH_CPU=2.13.0   # pinned; used when python3 has no torch of its own
TORCH_CUDA=2.14.1  # the same with HEADSCOPE_CUDA=1
TORCH_LEAST=2.8

BUILD_PACKAGES=(g++ cmake ninja-build pkg-config python3 python3-venv prometheus-cpp-dev libcivetweb-dev
  libcli11-dev libssl-dev nlohmann-json3-dev libsqlite3-dev libhwy-dev libgtest-dev libgmock-dev)
TEST_PACKAGES=(clang-format-14 curl git sqlite3)
FUZZ_PACKAGES=(clang-14 libclang-rt-14-dev)
PAGE_TEST_PACKAGES=(chromium fonts-dejavu-core)
QUICK_LABELS=(unit parity exporter rules lint)
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
./run.sh test [--quick | --long] [--label LABEL]...
                               build and run the tests; labels: unit parity emulated exporter rules plugin
                               e2e consumer lint, and with --long gpu; --quick: unit parity exporter rules
                               lint, without sanitizers and browser, for every change
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

# Programs alone are taken from Debian's packages: installing those would start servers.
need_monitoring_tools() {
  local bin=$BUILD/tools/usr/bin
  export PATH=$bin:$PATH
  need_program prometheus promtool prometheus
  need_program prometheus-alertmanager alertmanager
  need_program prometheus-pushgateway pushgateway
  # Debian's Alertmanager reads its templates from a folder of the package: the copy's are where it is started.
  local packaged=/usr/share/prometheus/alertmanager here=/proc/self/cwd
  if [ -f "$bin/alertmanager" ] && grep -q "$packaged" "$bin/alertmanager"; then
    while [ ${#here} -lt ${#packaged} ]; do here+=/; done
    LC_ALL=C sed -i "s#$packaged#$here#g" "$bin/alertmanager"
  fi
}

# need_program PACKAGE PROGRAM...
need_program() {
  local package=$1 program folder=$BUILD/tools missing=0
  shift
  for program in "$@"; do command -v "$program" >/dev/null || missing=1; done
  [ $missing = 1 ] || return 0
  say "fetching $*"
  mkdir -p "$folder/usr/bin"
  rm -rf "$folder/unpacked"
  if (cd "$folder" && { apt-get download -qq "$package" || { [ "$(id -u)" = 0 ] && apt-get update -qq &&
    apt-get download -qq "$package"; }; } && dpkg-deb -x "$package"_*.deb unpacked) >"$BUILD/apt.log" 2>&1; then
    for program in "$@"; do
      install "$(ls "$folder/unpacked/usr/bin/$program" "$folder/unpacked/usr/bin/prometheus-$program" 2>/dev/null)" \
        "$folder/usr/bin/$program"
    done
    cp "$folder"/unpacked/usr/share/prometheus/alertmanager/*.tmpl "$folder/usr/bin/" 2>/dev/null || true
    rm -rf "$folder/$package"_*.deb "$folder/unpacked"
  else
    [ -z "${CI:-}" ] || die "$* could not be fetched" "$(tail -n 2 "$BUILD/apt.log")"
    say "$* could not be fetched; the tests that need it will be skipped"
  fi
}

# What writes the dashboards and their plot, in an environment of its own.
need_dashboard_tools() {
  local folder=$BUILD/dashboard-tools requirements=$ROOT/docker/grafana/requirements.txt
  cmp -s "$requirements" "$folder/installed.txt" && return
  say "installing the dashboards' tools"
  if "${PYTHON:-python3}" -m venv "$folder" >"$BUILD/pip.log" 2>&1 &&
    "$folder/bin/python" -m pip install -q --disable-pip-version-check -r "$requirements" >>"$BUILD/pip.log" 2>&1; then
    cp "$requirements" "$folder/installed.txt"
  else
    [ -z "${CI:-}" ] || die "the dashboards' tools could not be installed" "$(tail -n 2 "$BUILD/pip.log")"
    say "the dashboards' tools could not be installed; the tests that need them will be skipped"
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

# need_test_tools [LABEL...]: the programs that tests run.
need_test_tools() {
  need_monitoring_tools
  need_dashboard_tools
  if [ $# = 0 ] || [[ " $* " == *" e2e "* ]]; then need_browser; fi
}

# libFuzzer's compiler (tests/fuzz).
need_fuzz_compiler() {
  if [ -n "${CI:-}" ]; then
    need_packages "${FUZZ_PACKAGES[@]}"
  elif ! command -v clang++-14 >/dev/null; then
    say "no clang++-14: the fuzzers will be skipped (Debian packages ${FUZZ_PACKAGES[*]})"
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
    TORCH_DIR=$(torch_of "${PYTHON:-python3}") || TORCH_DIR=$(torch_of "$ROOT/.venv/bin/python") ||
      if [ "${HEADSCOPE_CUDA:-0}" = 1 ]; then install_torch "$ROOT/.venv" "$TORCH_CUDA" 9; else
        install_torch "$ROOT/.venv" "$TORCH_CPU" 3
      fi
  fi
  say "torch: $TORCH_DIR"
  mkdir -p "$BUILD"
  printf '%s\n%s\n' "$wanted" "$TORCH_DIR" >"$stamp"
}

# install_torch VENV VERSION GB: into a virtual environment of its own; sets TORCH_DIR.
install_torch() {
  local venv=$1 version=$2 space_gb=$3 free_kb
  free_kb=$(df -Pk "$ROOT" | awk 'NR == 2 { print $4 }')
  [ "$free_kb" -ge $((space_gb * 1024 * 1024)) ] ||
    die "torch $version needs about $space_gb GB and $ROOT has $((free_kb / 1024)) MB left" "free some space"
  say "installing torch $version into ${venv#"$ROOT"/} (once; some minutes)"
  "${PYTHON:-python3}" -m venv "$venv" >&2 ||
    die "no virtual environment could be made" "sudo apt-get install python3-venv"
  local quiet=(-q)
  [ ! -t 2 ] || quiet=()
  "$venv/bin/python" -m pip install "${quiet[@]}" --disable-pip-version-check "torch==$version" >&2 ||
    die "pip could not install torch==$version (its message is above)" \
      "is the network there? behind a proxy or mirror set PIP_INDEX_URL; or point HEADSCOPE_TORCH_DIR at a torch"
  TORCH_DIR=$(torch_of "$venv/bin/python") || die "torch $version was installed but cannot be imported" \
    "$("$venv/bin/python" -c 'import torch' 2>&1 | tail -n 1)"
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
  # The kernels for every architecture in the long form and where a GPU is meant, else for one.
  if [ -n "${HEADSCOPE_LONG:-}" ] || [ "${HEADSCOPE_CUDA:-0}" = 1 ]; then
    arguments+=(-DHEADSCOPE_CUDA_ONE_ARCHITECTURE=OFF)
  else
    arguments+=(-DHEADSCOPE_CUDA_ONE_ARCHITECTURE=ON)
  fi
  # Configured anew when it was installed since.
  ! command -v clang++-14 >/dev/null || arguments+=("-DHEADSCOPE_FUZZ_COMPILER=$(command -v clang++-14)")
  local stamp=$2/configure.stamp
  [ -f "$2/build.ninja" ] && [ "$(cat "$stamp" 2>/dev/null)" = "${arguments[*]}" ] && return
  say "configuring ($1)"
  mkdir -p "$2"
  (cd "$ROOT" && cmake "${arguments[@]}") >"$2/configure.log" 2>&1 ||
    { cat "$2/configure.log" >&2; die "cmake could not configure the build (its output is above)"; }
  printf '%s\n' "${arguments[*]}" >"$stamp"
}

# measured PART...: what these parts of docs/ci.md took when they were last measured, in seconds.
measured() {
  local part sum=0
  for part in "$@"; do
    sum=$((sum + $(sed -n "s/^| $part | [0-9]* | \([0-9]*\) |.*/\1/p" "$ROOT/docs/ci.md" | head -n 1) + 0))
  done
  echo "$sum"
}

# minutes SECONDS: for people.
minutes() { if [ "$1" -lt 90 ]; then echo "about $1 s"; else echo "about $((($1 + 30) / 60)) minutes"; fi; }

# build_targets FOLDER TARGET...
build_targets() {
  local folder=$1 steps total
  shift
  total=$(ninja -C "$BUILD" -t commands all | wc -l)
  steps=$(ninja -C "$folder" -n "$@" | grep -c '^\[' || true)
  [ "$steps" = 0 ] || say "building $* in ${folder#"$ROOT"/}: $steps steps," \
    "$(minutes $((steps * $(measured build) / (total > 0 ? total : 1) + 1)))"
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
  [ -f "$BUILD/build.ninja" ] || say "set-up: $(minutes "$(measured set-up)"), more where system packages are missing"
  prepare "${TEST_PACKAGES[@]}"
  need_monitoring_tools
  need_dashboard_tools
  build_targets "$BUILD" all
  say "ready: ./run.sh demo"
}

command_demo() {
  prepare
  build_targets "$BUILD" attention_only_lm headscope_cli
  [ $# -gt 0 ] || say "training takes about two minutes; --steps shortens it"
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
  local labels=() quick="" started=$SECONDS
  while [ $# -gt 0 ]; do
    case $1 in
      --long) export HEADSCOPE_LONG=1 ;;
      --quick) quick=1 labels+=("${QUICK_LABELS[@]}") ;;
      --label)
        [ $# -gt 1 ] || die "--label needs a value" "unit, parity, emulated, exporter, rules, plugin, e2e, consumer, lint or gpu"
        labels+=("$2")
        shift
        ;;
      *) die "unknown argument '$1' of ./run.sh test" "./run.sh --help" ;;
    esac
    shift
  done
  [ -z "$quick" ] || [ -z "${HEADSCOPE_LONG:-}" ] || die "--quick and --long exclude each other" "give one of them"
  [ -z "$quick" ] || [ "${labels[*]}" = "${QUICK_LABELS[*]}" ] ||
    die "--quick chooses the labels itself (${QUICK_LABELS[*]})" "leave --quick or --label out"
  [ -f "$BUILD/build.ninja" ] || say "set-up: $(minutes "$(measured set-up)"), more where system packages are missing"
  need_fuzz_compiler
  prepare "${TEST_PACKAGES[@]}"
  # Downloads wait for the network, the build for the cores: together.
  export PATH=$BUILD/tools/usr/bin:$PATH
  set -m  # a process group of their own, which the trap ends with all that they started
  need_test_tools "${labels[@]}" &
  local tools=$!
  set +m
  trap "kill -- -$tools 2>/dev/null || true" EXIT
  local summary=("$ROOT/tests/summary.py" --ledger "$ROOT/docs/ci.md" --seconds "set-up=$((SECONDS - started))")
  local lap=$SECONDS failed=0
  if [ -n "$quick" ]; then
    build_targets "$BUILD" headscope headscope_cli headscope_tests_unit headscope_tests_parity headscope_tests_exporter
  else
    build_targets "$BUILD" all
  fi
  wait "$tools" || die "what the tests need could not be installed (the reason is above)"
  trap - EXIT
  summary+=(--seconds "build=$((SECONDS - lap))")
  run_ctest "$BUILD" "" "${labels[@]}" || failed=1
  summary+=("$BUILD")

  # Once more under the sanitizers, which compile only what they test.
  if [ -n "$quick" ]; then
    :
  elif [ -n "${HEADSCOPE_LONG:-}" ]; then
    build_targets "$BUILD" headscope_bench
    sanitised dev asan unit exporter plugin
    sanitised tsan tsan exporter plugin
    cuda_build
  else
    sanitised dev asan unit exporter
  fi
  "${PYTHON:-python3}" "${summary[@]}" || failed=1
  say "took $((SECONDS - started)) s in all"
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
  run_ctest "$BUILD/$preset" "$name" "${checked[@]}" || failed=1
  summary+=("$name=$BUILD/$preset")
}

# With nvcc and a CUDA build of torch, on whatever machine this is: everything compiles, and without a GPU the
# library loads, measures on the CPU, and what needs a device skips. Part of command_test --long.
cuda_build() {
  [[ ${#labels[@]} -eq 0 || " ${labels[*]} " == *" gpu "* ]] || return 0
  if ! command -v nvcc /usr/local/cuda/bin/nvcc >/dev/null; then
    [ -z "${CI:-}" ] || die "nvcc is missing: the CUDA build cannot be tested"
    say "nvcc is missing; the CUDA build is skipped"
    return 0
  fi
  local HEADSCOPE_CUDA=1 TORCH_DIR lap=$SECONDS folder=$BUILD/cuda venv=$BUILD/cuda-venv
  TORCH_DIR=$(torch_of "$venv/bin/python") || install_torch "$venv" "$TORCH_CUDA" 9
  configure cuda "$folder"
  build_targets "$folder" headscope headscope_tests_gpu headscope_gpu_bench headscope_tests_parity
  summary+=(--seconds "cuda build=$((SECONDS - lap))")
  run_ctest "$folder" cuda gpu parity || failed=1
  summary+=("cuda=$folder")
}

# run_ctest FOLDER NAME [LABEL...]: results go to FOLDER/tests/results, where summary.py reads them. NAME stands before
# the labels in docs/ci.md.
run_ctest() {
  local folder=$1 name=$2 filter=() expected
  shift 2
  [ $# -eq 0 ] || filter=(-L "^($(IFS='|'; echo "$*"))\$")
  [ $# -gt 0 ] || set -- unit parity emulated exporter rules plugin e2e consumer lint
  expected=$(measured "${@/#/${name:+$name }}")
  say "testing $* in ${folder#"$ROOT"/}: $([ "$expected" = 0 ] && echo "no time known" || minutes "$expected")"
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
