"""The entry scripts of the images with the real demo: served, healthy, pushed at the end, and a .prom file meanwhile."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import demo
import monitoring

sys.path.insert(0, str(monitoring.ROOT / "tests" / "support"))
from needs import need  # noqa: E402
from ports import free_port  # noqa: E402


class Entry(unittest.TestCase):
    def setUp(self):
        need(shutil.which("curl"), "curl is not installed")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.runs = folder.name
        self.environment = {**os.environ, "HEADSCOPE_BIN": str(demo.BIN), "HEADSCOPE_RUNS": self.runs,
                            "HEADSCOPE_LISTEN": "127.0.0.1:0"}

    def start(self, *arguments, **environment):
        process = subprocess.Popen([monitoring.ROOT / "docker/demo.sh", "--threads", "1", "--quiet", *arguments],
                                   env={**self.environment, **environment}, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def until(self, condition, process, timeout=120):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and process.poll() is None:
            if condition():
                return
            time.sleep(0.05)
        self.fail(f"never came; the run ended with {process.poll()}")

    def test_healthy_while_it_trains_and_a_file_for_node_exporter(self):
        textfile = pathlib.Path(self.runs) / "headscope.prom"
        process = self.start("--steps", "100000", "--textfile", str(textfile))
        healthy = lambda: subprocess.run([monitoring.ROOT / "docker/healthy.sh"], env=self.environment,
                                         capture_output=True).returncode == 0
        self.until(healthy, process)
        self.until(lambda: textfile.exists() and "headscope_heads{" in textfile.read_text(), process)
        process.terminate()
        self.assertEqual(process.wait(120), 0)
        self.assertFalse(textfile.exists())
        self.assertFalse(healthy())

    def test_its_end_is_pushed(self):
        need(shutil.which("pushgateway"), "pushgateway is not installed")
        port = free_port()
        gateway = subprocess.Popen(["pushgateway", f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        self.addCleanup(gateway.wait)
        self.addCleanup(gateway.kill)
        process = self.start("--steps", "30", "--layers", "1", HEADSCOPE_RUN="small",
                             HEADSCOPE_PUSHGATEWAY=f"http://127.0.0.1:{port}")
        self.assertEqual(process.wait(120), 0)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        self.assertIn('headscope_step{instance="small",job="headscope"}', text)
        self.assertRegex(text, r'headscope_heads\{instance="small",job="headscope",source="probe"\} 8')
        self.assertIn("push_failure_time_seconds", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
