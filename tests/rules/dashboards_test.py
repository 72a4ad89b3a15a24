"""The committed dashboards are what the generator writes, and ask for what the catalogue has."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import alert_rules

sys.path.insert(0, str(alert_rules.ROOT / "tests" / "support"))
from needs import need  # noqa: E402

GRAFANA = alert_rules.ROOT / "docker" / "grafana"
PAGES = ("headscope-overview", "headscope-pattern", "headscope-head", "headscope-health")


def load(page):
    return json.loads((GRAFANA / "dashboards" / f"{page}.json").read_text(encoding="utf-8"))


def expressions(page):
    """The queries of panels, annotations and variables."""
    found = [target["expr"] for panel in page["panels"] for target in panel["targets"]]
    found += [annotation["expr"] for annotation in page["annotations"]["list"]]
    return found + [variable["query"] for variable in page["templating"]["list"] if variable["type"] == "query"]


class Dashboards(unittest.TestCase):
    def test_the_committed_ones_are_the_generated_ones(self):
        python = pathlib.Path(os.environ.get("HEADSCOPE_DASHBOARD_TOOLS", "none")) / "bin" / "python"
        need(python.exists(), "the dashboards' tools are not installed (./run.sh setup)")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([python, GRAFANA / "generate.py", folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual({file.stem for file in pathlib.Path(folder).iterdir()}, set(PAGES))
            for page in PAGES:
                self.assertEqual((pathlib.Path(folder) / f"{page}.json").read_text(),
                                 (GRAFANA / "dashboards" / f"{page}.json").read_text(),
                                 f"{page}: run docker/grafana/generate.py")

    def test_no_other_ones_are_committed(self):
        self.assertEqual({file.stem for file in (GRAFANA / "dashboards").iterdir()}, set(PAGES))

    def test_queries_name_metrics_and_labels_of_the_catalogue(self):
        known = alert_rules.catalogue()
        for name in PAGES:
            for expression in expressions(load(name)):
                self.assertTrue(re.search(r"\bheadscope_\w+", expression), expression)
                for metric, selector in re.findall(r"\b(headscope_\w+)(?:\{([^}]*)\})?", expression):
                    self.assertIn(metric, known, expression)
                    if metric != "headscope_run_info":
                        labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selector))
                        self.assertLessEqual(labels, known[metric], expression)

    def test_they_share_variables_and_events(self):
        for name, wanted in zip(PAGES, (["run"], ["run", "pattern"], ["run", "layer", "head"], ["run"])):
            page = load(name)
            self.assertEqual(page["uid"], name)
            self.assertEqual([v["name"] for v in page["templating"]["list"]], ["datasource", *wanted])
            self.assertEqual([a["name"] for a in page["annotations"]["list"]], ["emerging", "formed", "verified", "unspecific", "lost"])
            for panel in page["panels"]:
                self.assertTrue(panel["title"] and panel["description"], name)
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
