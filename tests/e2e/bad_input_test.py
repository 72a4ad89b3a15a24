"""Bad input gets a clear message or a counted, logged pause; the process never ends because of headscope."""

import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from demo import BIN, Demo


class Refusals(unittest.TestCase):
    """What cannot be trained: exit 2 and one line that names the value."""

    def refused(self, *arguments):
        run = Demo(*arguments)
        try:
            self.assertEqual(run.wait(60), 2, run.output())
            return run.output()
        finally:
            run.close()

    def test_no_layers(self):
        self.assertRegex(self.refused("--layers", 0), r"--layers.*0")

    def test_a_corpus_shorter_than_one_context(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as corpus:
            corpus.write("to be or not")
            corpus.flush()
            self.assertIn(corpus.name, self.refused("--corpus", corpus.name))

    def test_a_missing_corpus(self):
        self.assertIn("/no/such/corpus.txt", self.refused("--corpus", "/no/such/corpus.txt"))

    def test_heads_that_do_not_divide_the_width(self):
        self.assertRegex(self.refused("--heads", 7), r"--heads.*7")

    def test_a_port_that_is_none(self):
        run = Demo("--steps", 1, listen="127.0.0.1:99999")
        try:
            self.assertEqual(run.wait(60), 2)
            self.assertIn("99999", run.output())
        finally:
            run.close()


class Survived(unittest.TestCase):
    """What headscope cannot do: training goes on, the fault is said once and counted."""

    def trained(self, *arguments, steps=60, **keywords):
        run = Demo("--steps", steps, *arguments, **keywords)
        self.addCleanup(run.close)
        self.assertEqual(run.wait(240), 0, run.output()[-2000:])
        self.assertEqual(run.summary()["steps"], steps)
        return run

    def test_a_taken_port(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            run = self.trained(listen=f"127.0.0.1:{port}", steps=20)
            self.assertRegex(run.output(), rf"port {port} .* is taken, using port \d+")
            self.assertNotIn(f"serving metrics on http://127.0.0.1:{port}/", run.output())

    def test_an_unwritable_run_directory(self):
        run = self.trained(run_dir="/proc/headscope", steps=20)
        self.assertIn("/proc/headscope", run.output())
        self.assertEqual(run.summary()["health"]["errors"]["history"], 1)

    def test_nan_weights(self):
        run = self.trained("--inject-nan-at", 30)
        self.assertGreater(run.summary()["health"]["nonfinite_readings"], 0)
        self.assertEqual(run.output().count("NaN or Inf"), 1)

    def test_a_tap_without_its_bias(self):
        run = self.trained("--omit-bias")
        self.assertGreater(run.summary()["health"]["errors"]["self_check"], 0)
        self.assertIn("pass the layer's bias", run.output())

    def test_an_interrupt_leaves_the_history_whole(self):
        run = Demo("--steps", 100000)
        self.addCleanup(run.close)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and "headscope_step " not in (run.scrape() or ""):
            time.sleep(0.2)
        time.sleep(2)
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(60), 0, run.output()[-2000:])
        summary = run.summary()
        self.assertTrue(summary["interrupted"])
        table = subprocess.run([BIN / "headscope", "history", run.run_dir, "--csv"], capture_output=True, text=True)
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertGreater(len(table.stdout.splitlines()), 16)
        self.assertFalse(list(pathlib.Path(run.run_dir).glob("*.tmp")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
