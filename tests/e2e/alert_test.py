"""From a training run to a webhook, with real Prometheus and Alertmanager on the shipped rules and routes."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import demo
import monitoring

sys.path.insert(0, str(monitoring.ROOT / "tests" / "support"))
from needs import need  # noqa: E402

DASHBOARDS = [json.loads(file.read_text()) for file in (monitoring.ROOT / "docker/grafana/dashboards").glob("*.json")]


class Alerts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        need(monitoring.have_servers(), "prometheus and alertmanager are not installed")
        # Too few tokens for induction: its alert is due at once. The run outlasts the test.
        cls.training = demo.Demo("--steps", 100000, "--deadline-tokens", 50000, "--checkpoint-every", 0)
        cls.addClassCleanup(cls.training.close)
        cls.training.wait_for_step(1)
        cls.stack = monitoring.Stack((cls.training.run_dir / "endpoint").read_text().strip().removeprefix("http://"))
        cls.addClassCleanup(cls.stack.close)

    def received(self, alert, path):
        found = self.stack.wait_for(alert, lambda: self.stack.webhook.firing(alert))
        self.assertEqual({where for where, _ in found}, {path})
        return found[0][1]

    def test_1_alerts_reach_the_webhook_while_the_run_trains(self):
        late = self.received("HeadscopeCircuitLate", "/ticket")
        self.assertEqual(late["labels"]["pattern"], "induction")
        self.assertEqual(late["labels"]["severity"], "warning")
        self.assertIn("The induction circuit of 127.0.0.1:", late["annotations"]["summary"])
        self.assertEqual(late["annotations"]["runbook_url"], "docs/alerts.md#headscopecircuitlate")
        # Previous-token heads and the like form within a hundred steps.
        formed = self.received("HeadscopeCircuitFormed", "/note")
        self.assertNotEqual(formed["labels"]["pattern"], "induction")
        self.assertIsNone(self.training.process.poll(), "training has ended before its alerts arrived")
        paged = [alert["labels"]["alertname"] for path, alert in self.stack.webhook.received if path == "/page"]
        self.assertEqual(paged, [])

    def test_2_every_rule_is_evaluated_without_an_error(self):
        groups = self.stack.api("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        self.assertGreater(len(rules), 20)
        self.assertEqual([rule["name"] for rule in rules if rule["health"] != "ok"], [])

    def test_3_every_query_of_the_dashboards_has_data(self):
        self.assertEqual(len(DASHBOARDS), 4)
        # A probe with ablation comes when a circuit has formed; induction has not by then.
        queries = [expression.replace("$run", ".*").replace("$pattern", "previous-token").replace("$layer", "0")
                   .replace("$head", "0").replace("$__rate_interval", "30s").replace("$__interval", "10m")
                   for page in DASHBOARDS
                   for expression in [*(target["expr"] for panel in page["panels"] for target in panel["targets"]),
                                      *(annotation["expr"] for annotation in page["annotations"]["list"]
                                        if annotation["name"] in ("emerging", "formed"))]]
        self.assertGreater(len(queries), 50)
        self.stack.wait_for("an ablation", lambda: self.stack.query('headscope_ablation_effect_nats{pattern="previous-token"}'))
        for query in queries:
            self.stack.wait_for(query, lambda: self.stack.query(query), timeout=60)

    def test_4_every_variable_of_the_dashboards_has_a_choice(self):
        variables = {variable["query"] for page in DASHBOARDS for variable in page["templating"]["list"]
                     if variable["type"] == "query"}
        self.assertEqual(len(variables), 4)
        for variable in variables:
            selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable).groups()
            choices = self.stack.api(f"label/{label}/values", **{"match[]": selector.replace("$layer", "0")})
            self.assertTrue(choices, variable)

    def test_5_the_panels_are_drawn(self):
        python = demo.BIN.parent / "dashboard-tools" / "bin" / "python"
        need(python.exists(), "the dashboards' tools are not installed (./run.sh setup)")
        with tempfile.TemporaryDirectory() as folder:
            picture = pathlib.Path(folder) / "overview.png"
            done = subprocess.run([python, monitoring.ROOT / "docker/grafana/plot.py",
                                   f"http://127.0.0.1:{self.stack.prometheus}", "headscope-overview", picture],
                                  capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("without data: none", done.stdout)
            self.assertEqual(picture.read_bytes()[:4], b"\x89PNG")

    def test_9_a_killed_run_is_a_page(self):
        self.training.kill()
        self.received("HeadscopeScrapeDown", "/page")


if __name__ == "__main__":
    unittest.main(verbosity=2)
