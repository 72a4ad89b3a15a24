"""Runs the demo trainer for the end-to-end tests."""

import json
import os
import pathlib
import subprocess
import tempfile
import urllib.request

BIN = pathlib.Path(os.environ["HEADSCOPE_BIN"])


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

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()
