"""A run that was killed or interrupted goes on from its checkpoint and equals the unbroken run bit for bit."""

import contextlib
import pathlib
import shutil
import signal
import sqlite3
import tempfile
import time
import unittest
import zipfile

from demo import Demo, history, last_step

# The number of rows stays last.
SMALL = ["--layers", 2, "--heads", 2, "--width", 32, "--context", 16, "--batch", 8]
STEPS = 300


def tensors(checkpoint):
    """The bytes of every tensor, sorted: the optimizer's stand in the order of their addresses."""
    with zipfile.ZipFile(checkpoint) as archive:
        names = [name for name in archive.namelist() if pathlib.Path(name).parent.name == "data"]
        return sorted(archive.read(name) for name in names)


class Resumed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_dir = pathlib.Path(folder.name) / "run"

    def start(self, *arguments, steps=STEPS, small=SMALL):
        run = Demo(*small, "--steps", steps, *arguments, run_dir=self.run_dir)
        self.addCleanup(run.close)
        return run

    def finished(self, *arguments, **keywords):
        run = self.start(*arguments, **keywords)
        self.assertEqual(run.wait(240), 0, run.output()[-2000:])
        return run

    def refused(self, *arguments, **keywords):
        run = self.start(*arguments, **keywords)
        self.assertEqual(run.wait(60), 2, run.output()[-2000:])
        return run.output()

    def checkpoint(self):
        return self.run_dir / "checkpoint.pt"

    def killed_at(self, step, *arguments):
        run = self.start(*arguments)
        run.wait_for_step(step)
        self.assertEqual(run.kill(), -signal.SIGKILL, "it had ended before the kill")
        return run

    def expect_equal(self, run, unbroken, unbroken_dir):
        got, want = run.summary(), unbroken.summary()
        for key in ("loss_hash", "final_loss", "validation_loss", "repeated_text", "circuits", "ablations", "steps"):
            self.assertEqual(got[key], want[key], key)
        got, want = history(self.run_dir), history(unbroken_dir)
        self.assertTrue(want["events"] and want["ablations"] and want["readings"], "an empty comparison")
        for key in ("readings", "events", "ablations", "circuits"):
            self.assertEqual(got[key], want[key], key)

    def rows(self, query):
        with contextlib.closing(sqlite3.connect(self.run_dir / "history.sqlite")) as database:
            return database.execute(query).fetchall()


class EqualsTheUnbroken(Resumed):
    """One unbroken run without any checkpoint is what all others must equal."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.unbroken_dir = pathlib.Path(cls.folder.name) / "run"
        cls.unbroken = Demo(*SMALL, "--steps", STEPS, "--checkpoint-every", 0, run_dir=cls.unbroken_dir)
        if cls.unbroken.wait(240) != 0:
            raise AssertionError(cls.unbroken.output()[-2000:])

    @classmethod
    def tearDownClass(cls):
        cls.unbroken.close()
        cls.folder.cleanup()

    def test_no_checkpoint_when_none_is_asked_for(self):
        self.assertFalse((self.unbroken_dir / "checkpoint.pt").exists())
        self.assertFalse(self.unbroken.summary()["resumable"])

    def test_killed_after_a_checkpoint(self):
        self.killed_at(212)
        killed_at = last_step(self.run_dir)
        run = self.finished("--resume")
        self.assertEqual(run.summary()["resumed_at"], [200])
        self.assertIn("Resumed at step 200", run.output())
        self.expect_equal(run, self.unbroken, self.unbroken_dir)
        # Every point is there once, and those after the checkpoint say that they come from a resumed run.
        points = self.rows("SELECT step, source, segment FROM current_snapshot")
        self.assertEqual(len(points), len(set((step, source) for step, source, _ in points)) + self.verdicts(points))
        self.assertEqual({segment for step, _, segment in points if step < 200}, {0})
        self.assertEqual({segment for step, _, segment in points if step >= 200}, {1})
        self.assertEqual(self.rows("SELECT segment, supersedes_from FROM stretch")[1], (1, 200))
        replayed = self.rows("SELECT min(step), max(step), max(segment) FROM superseded_snapshot")[0]
        self.assertGreaterEqual(replayed[0], 200)
        self.assertEqual(replayed[1:], (killed_at, 0))

    @staticmethod
    def verdicts(points):
        """The closing verification has a row of its own beside the readings of the last step."""
        last = [source for step, source, _ in points if step == STEPS - 1]
        return len(last) - len(set(last))

    def test_killed_again_and_again(self):
        self.killed_at(65, "--checkpoint-every", 50)
        kept = self.checkpoint().read_bytes()
        self.killed_at(80, "--checkpoint-every", 0, "--resume")
        self.assertEqual(self.checkpoint().read_bytes(), kept)
        self.killed_at(125, "--checkpoint-every", 50, "--resume")
        run = self.finished("--resume")
        self.assertEqual(run.summary()["resumed_at"], [50, 100])
        self.expect_equal(run, self.unbroken, self.unbroken_dir)

    def test_interrupted(self):
        run = self.start("--checkpoint-every", 1000)
        run.wait_for_step(60)
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(60), 0, run.output()[-2000:])
        summary = run.summary()
        self.assertTrue(summary["interrupted"] and summary["resumable"])
        self.assertRegex(run.output(), rf"To go on: .*--run-dir {self.run_dir} .*--resume\n")
        resumed = self.finished("--resume")
        self.assertEqual(resumed.summary()["resumed_at"], [summary["steps"]])
        self.expect_equal(resumed, self.unbroken, self.unbroken_dir)

    def test_without_a_monitor(self):
        off = ["--monitor", "off", "--checkpoint-every", 20]
        run = self.start(*off)
        while not self.checkpoint().exists() and run.process.poll() is None:
            time.sleep(0.001)
        self.assertEqual(run.kill(), -signal.SIGKILL)
        resumed = self.finished(*off, "--resume")
        self.assertTrue(resumed.summary()["resumed_at"])
        self.assertEqual(resumed.summary()["loss_hash"], self.unbroken.summary()["loss_hash"])
        # Weights and the optimizer's moments, as the last checkpoint has them.
        got = tensors(self.checkpoint())
        shutil.rmtree(self.run_dir)
        self.finished(*off)
        want = tensors(self.checkpoint())
        self.assertGreater(len(want), 40)
        self.assertTrue(got == want, "a weight or a moment differs")


class Refused(Resumed):
    def test_nothing_to_resume(self):
        self.killed_at(20)
        self.assertRegex(self.refused("--resume"), r"nothing to resume.*checkpoint\.pt")

    def test_other_options_by_name(self):
        self.finished("--checkpoint-every", 10, "--monitor", "off", steps=20)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as corpus:
            corpus.write("to be, or not to be; that is the question.\n" * 100)
            corpus.flush()
            said = self.refused("--monitor", "off", "--resume", "--seed", 7, "--lr", 1e-3, "--corpus", corpus.name,
                                small=[*SMALL[:-1], 9])
        self.assertIn("--seed was 0 and is 7", said)
        self.assertIn("--batch was 8 and is 9", said)
        self.assertIn("--lr was 0.005", said)
        self.assertIn("--corpus (hash of its content) was", said)
        self.assertNotIn("--layers", said)
        self.assertIn("has done 20 steps: give more --steps", self.refused("--monitor", "off", "--resume", steps=20))
        whole = self.checkpoint().read_bytes()
        self.checkpoint().write_bytes(whole[:len(whole) // 2])
        self.assertIn("cannot be read", self.refused("--monitor", "off", "--resume"))
        self.checkpoint().write_bytes(whole)
        longer = self.finished("--monitor", "off", "--resume", steps=40)
        self.assertEqual(longer.summary()["resumed_at"], [20])
        # A new run in the directory is not to be continued from the old one's checkpoint.
        self.assertIn("checkpoint.pt.previous", self.finished("--monitor", "off", "--checkpoint-every", 0,
                                                              steps=5).output())
        self.assertIn("nothing to resume", self.refused("--monitor", "off", "--resume"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
