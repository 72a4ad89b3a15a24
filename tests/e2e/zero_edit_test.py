"""Two trainers whose model code knows nothing of headscope: every layer is seen, the losses are the same bits."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["HEADSCOPE_BIN"])


def run(program, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        summary = pathlib.Path(folder) / "summary.json"
        done = subprocess.run([BIN / program, "--quiet", "--port", "0", "--summary", summary, *map(str, arguments)],
                              capture_output=True, text=True, timeout=240)
        return done, json.loads(summary.read_text()) if summary.exists() else None


class ZeroEdit(unittest.TestCase):
    def check(self, program, kind, key_heads):
        hashes = set()
        for monitor in ("off", "on"):
            done, summary = run(program, "--steps", 40, "--layers", 4, "--monitor", monitor)
            self.assertEqual(done.returncode, 0, done.stderr)
            hashes.add(summary["loss_hash"])
            self.assertEqual(summary["layers"], 4)
        self.assertEqual(len(hashes), 1, hashes)
        self.assertEqual(summary["layers_seen"], 4)
        self.assertEqual([site["layer"] for site in summary["sites"]], [0, 1, 2, 3])
        self.assertEqual({site["kind"] for site in summary["sites"]}, {kind})
        self.assertEqual({site["key_heads"] for site in summary["sites"]}, {key_heads})
        self.assertEqual(summary["taps_missing"], 0)
        self.assertGreater(summary["probes"], 5)
        self.assertEqual(set(summary["errors"].values()), {0}, summary["errors"])

    def test_gpt_with_torch_nn_multihead_attention(self):
        self.check("zero_edit_gpt", "bmm-softmax-bmm", 4)

    def test_llama_with_grouped_queries(self):
        self.check("zero_edit_llama", "scaled_dot_product_attention", 2)

    def test_their_models_hold_no_line_of_headscope(self):
        for name in ("zero_edit_gpt", "zero_edit_llama"):
            for file in (ROOT / "plugin" / "examples" / name).glob("model.*"):
                self.assertNotIn("headscope", file.read_text().lower(), file)

    def test_bad_arguments_are_named(self):
        for arguments in (("--steps", 0), ("--monitor", "maybe"), ("--context", 4), ("--budget", 2)):
            done, _ = run("zero_edit_gpt", *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(arguments[0], done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
