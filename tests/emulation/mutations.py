"""Proof that the emulated tests have teeth: each mutation of a kernel must fail its test.

  mutations.py [--compiler C++] [--kernel NAME]... [--scratch FOLDER] [--jobs N]
  mutations.py --check

Every mutation replaces one text, which occurs once, in a copy of the sources; the kernel's test is then built plain
and, when that passes, under ThreadSanitizer. Prints a table; exit 1 when a mutation survives or no longer applies.
Without HEADSCOPE_LONG=1 the test exits with 77, skipped: about a minute and a half of CPU a mutation. --check, at once
and always, holds the lists to the sources: every kernel has one, every text that is to be replaced occurs once, and
every barrier is removed.
The mutations of a kernel lie in mutations/<kernel>.json:

  {"kernels": ["kernels/gram.cu"], "tests": ["tests/emulation/gram_emulated_test.cpp"],
   "mutations": [{"name": "...", "file": "kernels/gram.cuh", "old": "...", "new": "..."}]}
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EMULATION = [f"tests/emulation/device/{name}.cpp" for name in ("fiber", "scheduler", "shared_memory", "warp_operations")]
BARRIER = "__syncthreads();"
SECONDS = 300  # a mutant that loops for ever is caught too


def compile_objects(compiler, root, folder, sources, flags):
    objects = []
    for source in sources:
        target = folder / (pathlib.Path(source).stem + ".o")
        subprocess.run([compiler, "-std=c++20", "-O1", "-g1", "-w", f"-I{root}", f"-I{root}/tests/emulation/device", *flags,
                        "-x", "c++", "-c", root / source, "-o", target], check=True, capture_output=True, text=True)
        objects.append(target)
    return objects


FLAGS = {"plain": [], "tsan": ["-fsanitize=thread", "-DHEADSCOPE_EMULATION_TSAN"]}


def untouched(compiler, folder, tests):
    """Objects that no mutation touches, by variant: the emulator, not instrumented, and the tests."""
    built = {}
    for variant, flags in FLAGS.items():
        (folder / variant).mkdir(parents=True)
        built[variant] = compile_objects(compiler, ROOT, folder / variant, EMULATION, flags[1:])
        built[variant] += compile_objects(compiler, ROOT, folder / variant, tests, flags)
    return built


def fails(compiler, root, folder, sources, others, variant):
    """How the test of a tree fails, or None."""
    flags = FLAGS[variant]
    folder.mkdir(parents=True)
    try:
        objects = compile_objects(compiler, root, folder, sources, flags)
        subprocess.run([compiler, *flags, *objects, *others, "-lgmock", "-lgtest", "-lgtest_main", "-pthread",
                        "-o", folder / "test"], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        return "does not compile: " + next((line for line in error.stderr.splitlines() if "error" in line), "?")
    environment = dict(os.environ, GTEST_FAIL_FAST="1", TSAN_OPTIONS="halt_on_error=1")
    environment.pop("GTEST_OUTPUT", None)
    try:
        run = subprocess.run([folder / "test"], env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {SECONDS} s"
    if run.returncode == 0:
        return None
    said = run.stdout + run.stderr
    failed = [line for line in said.splitlines() if line.startswith("[  FAILED  ]") and "ms)" in line]
    if "data race" in said:
        return "data race"
    return failed[0].removeprefix("[  FAILED  ] ").split(" (")[0].split(",")[0] if failed else f"exit status {run.returncode}"


def applied(mutation):
    """The text of the mutated file, or what is wrong with the mutation."""
    file = ROOT / mutation["file"]
    text = file.read_text() if file.is_file() else ""
    if text.count(mutation["old"]) != 1:
        return None, f"its text occurs {text.count(mutation['old'])} times in {mutation['file']}"
    if mutation["old"] == mutation["new"]:
        return None, "changes nothing"
    return text.replace(mutation["old"], mutation["new"]), None


def wrong_in(lists):
    """What is wrong with the lists, a line each."""
    covered = set()
    for name, description in lists.items():
        if sorted(description) != ["kernels", "mutations", "tests"]:
            yield f"{name}: has {sorted(description)}, not kernels, mutations and tests"
            continue
        covered.update(description["kernels"])
        yield from (f"{name}: no file {source}" for source in description["kernels"] + description["tests"]
                    if not (ROOT / source).is_file())
        names = [mutation["name"] for mutation in description["mutations"]]
        yield from (f"{name}: two mutations are called {twice}" for twice in sorted({n for n in names if names.count(n) > 1}))
        for mutation in description["mutations"]:
            _, wrong = applied(mutation)
            if wrong:
                yield f"{name}: {mutation['name']}: {wrong}"
    kernels = {str(path.relative_to(ROOT)) for path in (ROOT / "kernels").glob("*.cu")}
    yield from (f"{kernel}: no list of mutations" for kernel in sorted(kernels - covered))
    everywhere = [mutation for description in lists.values() for mutation in description.get("mutations", [])]
    for path in sorted((ROOT / "kernels").glob("*.cu*")):
        text, file = path.read_text(), str(path.relative_to(ROOT))
        removed = sum(m["old"].count(BARRIER) - m["new"].count(BARRIER) for m in everywhere if m["file"] == file)
        if removed != text.count(BARRIER):
            yield f"{file}: {text.count(BARRIER)} barriers, of which the mutations remove {removed}"


def examine(compiler, scratch, built, kernel, mutation, sources):
    """(how it was caught or None, what is wrong with the mutation itself)"""
    folder = scratch / kernel / mutation["name"].replace(" ", "_").replace("/", "_")
    tree = folder / "tree"
    for part in ("kernels", "tests/emulation"):
        shutil.copytree(ROOT / part, tree / part)
    text, wrong = applied(mutation)
    if wrong:
        return None, wrong
    (tree / mutation["file"]).write_text(text)
    for variant in ("plain", "tsan"):
        how = fails(compiler, tree, folder / variant, sources, built[variant], variant)
        if how is not None:
            shutil.rmtree(folder)
            return (None, how) if how.startswith("does not compile") else (f"{variant}: {how}", None)
    shutil.rmtree(folder)
    return None, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--kernel", action="append")
    parser.add_argument("--scratch", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="only hold the lists to the sources")
    arguments = parser.parse_args()
    lists = {path.stem: json.loads(path.read_text())
             for path in sorted(pathlib.Path(__file__).with_name("mutations").glob("*.json"))}
    unknown = sorted(set(arguments.kernel or []) - set(lists))
    if unknown:
        parser.error(f"no list of mutations for {', '.join(unknown)}; there are {', '.join(lists)}")
    wrong = list(wrong_in(lists))
    if wrong or arguments.check:
        print("\n".join(wrong) or f"{sum(len(d['mutations']) for d in lists.values())} mutations of {len(lists)} kernels apply")
        return 1 if wrong else 0
    if not os.environ.get("HEADSCOPE_LONG"):
        print("skipped: HEADSCOPE_LONG=1 runs the mutations")
        return 77
    survived = 0
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        scratch = pathlib.Path(folder)
        for name in arguments.kernel or lists:
            description = lists[name]
            built = untouched(arguments.compiler, scratch / f"{name}_tests", description["tests"])
            unchanged = fails(arguments.compiler, ROOT, scratch / f"{name}_unchanged", description["kernels"],
                              built["plain"], "plain")
            if unchanged is not None:
                print(f"{name}: fails without a mutation: {unchanged}")
                return 1
            with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
                results = pool.map(lambda mutation: examine(arguments.compiler, scratch, built, name, mutation,
                                                            description["kernels"]), description["mutations"])
                for mutation, (caught, wrong) in zip(description["mutations"], results):
                    survived += caught is None
                    print(f"{name:12} {mutation['name']:44} {caught or wrong or 'SURVIVED'}", flush=True)
    print(f"{survived} not caught" if survived else "all caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
