"""Runs one fuzzer on its corpus and then on new inputs for 10 s, with HEADSCOPE_LONG=1 for 60 s: fuzz_test.py PROGRAM

What it finds is kept in PROGRAM-found: put the file into tests/fuzz/corpus, where it is tried at every start, and mend
the code."""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from needs import need  # noqa: E402

PROGRAM = pathlib.Path(sys.argv.pop())
CORPUS = HERE / "corpus" / PROGRAM.name.removeprefix("fuzz_")
SECONDS = 60 if os.environ.get("HEADSCOPE_LONG") else 10
RUNS = 10**6 if os.environ.get("HEADSCOPE_LONG") else 20000


class Fuzzer(unittest.TestCase):
    def setUp(self):
        need(PROGRAM.exists(), "the fuzzers are not built: clang++-14 is missing (Debian packages clang-14 and "
                               "libclang-rt-14-dev)")

    def fuzz(self, *arguments):
        run = subprocess.run([PROGRAM, "-timeout=60", "-rss_limit_mb=768", *arguments], capture_output=True, text=True,
                             errors="replace", timeout=200)
        self.assertEqual(run.returncode, 0, run.stderr[-8000:])
        return run.stderr

    def test_what_was_found_before(self):
        inputs = sorted(CORPUS.iterdir())
        said = self.fuzz(*inputs)
        self.assertEqual(said.count("Executed "), len(inputs), said)

    def test_new_inputs(self):
        found, interesting = (PROGRAM.with_name(PROGRAM.name + suffix) for suffix in ("-found", "-interesting"))
        for folder in (found, interesting):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        dictionary = HERE / (CORPUS.name + ".dict")
        # Entropic's weighing of inputs costs more than running them.
        said = self.fuzz(f"-max_total_time={SECONDS}", f"-runs={RUNS}", "-seed=1", "-entropic=0",
                         "-print_final_stats=1", f"-artifact_prefix={found}/",
                         *([f"-dict={dictionary}"] if dictionary.exists() else []), interesting, CORPUS)
        self.assertEqual(list(found.iterdir()), [])
        self.assertRegex(said, r"Done \d{3,} runs")


if __name__ == "__main__":
    unittest.main(verbosity=2)
