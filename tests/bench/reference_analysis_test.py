"""The script's two ways agree on a small model before it times them, and what it cannot do it says."""
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from needs import need  # noqa: E402


class Script(unittest.TestCase):
    def run_with(self, *tokens):
        python = os.environ["HEADSCOPE_TORCH_PYTHON"]
        need(python, "no Python lies beside the torch of this build")
        return subprocess.run([python, HERE / "reference_analysis.py", "--library", os.environ["HEADSCOPE_LIBRARY"],
                               "--layers", "2", "--heads", "2", "--batch", "1", "--tokens", *tokens],
                              capture_output=True, text=True, timeout=110)

    def test_both_ways_agree_and_are_timed(self):
        done = self.run_with("40", "65")
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        for line, length in zip(done.stdout.splitlines(), (40, 65), strict=True):
            self.assertRegex(line, rf"^T = +{length}: usual way +[\d.]+ ms a layer, headscope +[\d.]+ ms: [\d.]+x$")

    def test_too_few_tokens_are_refused(self):
        done = self.run_with("16")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--tokens 16: 16 rows are sampled", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
