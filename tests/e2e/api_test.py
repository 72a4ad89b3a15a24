"""The JSON API against its description: every answer of a real run fits docs/openapi.yaml, and schemathesis finds no
query that is answered otherwise."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import urllib.request

from browser import BIN, PYTHON

from demo import Demo
from needs import need

DESCRIPTION = pathlib.Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml"
SECONDS = 120
EXAMPLES = 40

try:
    import jsonschema_rs  # both come with schemathesis
    import yaml
except ImportError:
    jsonschema_rs = None


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


class Refusals(unittest.TestCase):
    """What cannot be shown: exit 2, a line that names it, nothing on standard output."""

    def refused(self, *arguments):
        run = subprocess.run([BIN / "headscope", *arguments], capture_output=True, text=True, timeout=60)
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        return run.stderr

    def test_a_directory_without_a_history(self):
        with tempfile.TemporaryDirectory() as folder:
            for command in ("serve", "report"):
                self.assertIn(f"there is no run history at {folder}", self.refused(command, folder))

    def test_a_pipe_in_the_place_of_the_history(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(pathlib.Path(folder) / "history.sqlite")
            for command in ("serve", "report"):
                self.assertIn("is not a file", self.refused(command, folder))

    def test_html_and_json_at_once(self):
        self.assertIn("--json", self.refused("report", "run", "--json", "--html", "page.html"))


class Api(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        need(jsonschema_rs is not None, "schemathesis is not installed; ./run.sh test installs it")
        cls.demo = Demo("--steps", 60)
        cls.addClassCleanup(cls.demo.close)
        if cls.demo.wait(300) != 0:
            raise AssertionError(cls.demo.output()[-2000:])
        cls.server = subprocess.Popen([BIN / "headscope", "serve", cls.demo.run_dir, "--port", "0"],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        cls.addClassCleanup(cls.stop)
        cls.url = cls.server.stdout.readline().strip().rstrip("/")

    @classmethod
    def stop(cls):
        cls.server.terminate()
        status = cls.server.wait(30)
        cls.server.stdout.close()
        assert status == 0, f"headscope serve ends with {status} on SIGTERM"

    def fits(self, target):
        """The answer to a target, checked against the description of its path."""
        description = yaml.safe_load(DESCRIPTION.read_text())
        path = target.partition("?")[0]
        schema = description["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        answer = get(self.url + target)
        jsonschema_rs.validate({**schema, "components": description["components"]}, answer)
        return answer

    def test_answers_fit_their_description(self):
        answer = self.fits("/api/v1/snapshot?since=0&head=1.4")
        self.assertGreater(len(answer["snapshots"]), 10)
        self.assertEqual({row["source"] for row in answer["snapshots"]}, {"train", "probe"})
        self.assertEqual(len(answer["snapshots"][-1]["head"]["patterns"]), 6)
        self.assertEqual(self.fits(f"/api/v1/snapshot?since={answer['next']}")["snapshots"], [])
        self.assertGreater(len(self.fits("/api/v1/events")["events"]), 0)
        run = self.fits("/api/v1/run")
        self.assertEqual(run["step"], max(row["step"] for row in answer["snapshots"]))

    def test_a_wrong_answer_would_not_fit(self):
        description = yaml.safe_load(DESCRIPTION.read_text())
        snapshot = get(self.url + "/api/v1/snapshot")["snapshots"][-1]
        schema = {"$ref": "#/components/schemas/Snapshot", "components": description["components"]}
        jsonschema_rs.validate(schema, snapshot)
        with self.assertRaises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(schema, {**snapshot, "loss": "none"})

    def test_the_report_holds_the_same(self):
        report = json.loads(subprocess.check_output([BIN / "headscope", "report", self.demo.run_dir, "--json"]))
        self.assertEqual(report["run"]["step"], get(self.url + "/api/v1/run")["step"])
        self.assertEqual(len(report["timeline"]["snapshots"]), len(get(self.url + "/api/v1/snapshot")["snapshots"]))

    def test_a_report_that_cannot_be_written(self):
        run = subprocess.run([BIN / "headscope", "report", self.demo.run_dir, "--html", "/nonexistent/page.html"],
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 2)
        self.assertIn("/nonexistent/page.html: cannot be written", run.stderr)

    def test_schemathesis_finds_nothing(self):
        # Left out: the HTTP library itself refuses TRACE, with 400. Other methods are in tests/exporter/page/page_test.cpp.
        command = [PYTHON.parent / "schemathesis", "run", DESCRIPTION, "--url", self.url, "--max-examples", str(EXAMPLES),
                   "--seed", "1", "--phases", "examples,coverage,fuzzing", "--exclude-checks",
                   "unsupported_method", "--generation-database", "none"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=self.demo.folder.name)
        self.assertEqual(run.returncode, 0, run.stdout[-6000:] + run.stderr[-2000:])


if __name__ == "__main__":
    unittest.main(verbosity=2)
