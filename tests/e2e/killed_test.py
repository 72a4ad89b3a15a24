"""SIGKILL at any moment: the history is readable to its last commit, the checkpoint is absent or whole, and the run
goes on from it as if nothing had been.

5 trials, 100 with HEADSCOPE_LONG=1; HEADSCOPE_SEED chooses the moments.
"""

import contextlib
import os
import pathlib
import random
import signal
import sqlite3
import tempfile
import time
import unittest
import zipfile

from demo import Demo, history, history_command

TRIALS = 100 if os.environ.get("HEADSCOPE_LONG") else 5
SHORT = ["--layers", 2, "--heads", 2, "--width", 32, "--context", 16, "--batch", 8, "--steps", 120,
         "--checkpoint-every", 15]


class Killed(unittest.TestCase):
    def test_at_random_moments(self):
        seed = int(os.environ.get("HEADSCOPE_SEED") or random.randrange(1 << 30))
        print(f"HEADSCOPE_SEED={seed}, {TRIALS} trials", flush=True)
        moments = random.Random(seed)
        unbroken = Demo(*SHORT)
        self.addCleanup(unbroken.close)
        start = time.monotonic()
        self.assertEqual(unbroken.wait(120), 0, unbroken.output()[-2000:])
        duration = time.monotonic() - start
        self.want = unbroken.summary(), history(unbroken.run_dir)
        for trial in range(TRIALS):
            delay = moments.uniform(0.1, 1.0) * duration
            with self.subTest(trial=trial, seed=seed, delay=delay):
                self.trial(delay)

    def trial(self, delay):
        with tempfile.TemporaryDirectory() as folder:
            run_dir = pathlib.Path(folder) / "run"
            with contextlib.closing(Demo(*SHORT, run_dir=run_dir)) as run:
                time.sleep(delay)
                status = run.kill()
                self.assertIn(status, (-signal.SIGKILL, 0), run.output()[-2000:])
            self.expect_readable(run_dir)
            checkpoint = run_dir / "checkpoint.pt"
            if checkpoint.exists():
                with zipfile.ZipFile(checkpoint) as archive:
                    self.assertIsNone(archive.testzip())
            had_one = checkpoint.exists()
            with contextlib.closing(Demo(*SHORT, "--resume", run_dir=run_dir)) as resumed:
                status = resumed.wait(120)
                if not had_one:
                    self.assertEqual(status, 2, resumed.output()[-2000:])
                    self.assertIn("nothing to resume", resumed.output())
                    return
                if status == 2:
                    self.assertIn("has done 120 steps", resumed.output())
                else:
                    self.assertEqual(status, 0, resumed.output()[-2000:])
                    got, want = resumed.summary(), self.want[0]
                    for key in ("loss_hash", "circuits", "ablations", "validation_loss"):
                        self.assertEqual(got[key], want[key], key)
            got, want = history(run_dir), self.want[1]
            for key in ("readings", "events", "ablations", "circuits"):
                self.assertEqual(got[key], want[key], key)

    def expect_readable(self, run_dir):
        """By our reader first: it has to cope with what the killed writer left."""
        answer = history_command(run_dir)
        file = run_dir / "history.sqlite"
        if not file.exists():
            return
        with contextlib.closing(sqlite3.connect(file)) as database:
            self.assertEqual(database.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables:
            self.assertEqual(answer.returncode, 0, answer.stderr)
        else:
            self.assertIn("is empty", answer.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
