"""Runs the demo trainer for the end-to-end tests."""

import contextlib
import json
import os
import pathlib
import sqlite3
import subprocess
import tempfile
import time
import urllib.request

BIN = pathlib.Path(os.environ["HEADSCOPE_BIN"])


def last_step(run_dir):
    """The last step of the run history, or None while there is none."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{run_dir}/history.sqlite?mode=ro", uri=True)) as database:
            return database.execute("SELECT max(step) FROM snapshot").fetchone()[0]
    except sqlite3.Error:
        return None


def history_command(run_dir):
    return subprocess.run([BIN / "headscope", "history", run_dir, "--json", "--source", "all"], capture_output=True,
                          text=True)


def history(run_dir):
    """What `headscope history` says of a run, without wall times."""
    answer = history_command(run_dir)
    if answer.returncode != 0:
        raise AssertionError(answer.stderr)
    return without_times(json.loads(answer.stdout))


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if key != "wall_time"}
    return [without_times(part) for part in value] if isinstance(value, list) else value


class Demo:
    """One run of attention_only_lm in its own run directory, with one thread and a free port."""

    def __init__(self, *arguments, run_dir=None, listen="127.0.0.1:0"):
        self.folder = tempfile.TemporaryDirectory()
        base = pathlib.Path(self.folder.name)
        self.run_dir = pathlib.Path(run_dir) if run_dir else base / "run"
        self.summary_file = base / "summary.json"
        self.log = open(base / "log.txt", "w+")
        command = [BIN / "attention_only_lm", "--threads", "1", "--run-dir", self.run_dir,
                   "--summary", self.summary_file, "--listen", listen, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)

    def wait(self, timeout=900):
        """Waits for the end; returns the exit status."""
        return self.process.wait(timeout)

    def output(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def summary(self):
        return json.loads(self.summary_file.read_text())

    def circuit(self, pattern):
        return next(c for c in self.summary()["circuits"] if c["pattern"] == pattern)

    def scrape(self):
        """The text of /metrics, or None while the server is not up."""
        try:
            url = (self.run_dir / "endpoint").read_text().strip()
            with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            return None

    def wait_for_step(self, step, timeout=120):
        """Waits until the history holds a reading of `step` or later."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self.process.poll() is None:
            if (last_step(self.run_dir) or 0) >= step:
                return
            time.sleep(0.01)
        raise AssertionError(f"step {step} was not seen: {self.output()[-2000:]}")

    def kill(self):
        self.process.kill()
        return self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()
