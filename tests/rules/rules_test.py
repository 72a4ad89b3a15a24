"""promtool runs the shipped rules on the series of cases.py."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import alert_rules
import cases

sys.path.insert(0, str(alert_rules.ROOT / "tests" / "support"))
from needs import need  # noqa: E402


def firing(alert, minute, count):
    """One query for a firing alert, `count` series of which are expected."""
    return {"expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})', "eval_time": f"{round(minute)}m",
            "exp_samples": [{"labels": "{}", "value": count}] if count else []}


def block(name, series, queries):
    return {"name": name, "interval": "1m",
            "input_series": [{"series": key, "values": values} for key, values in series.items()],
            "promql_expr_test": queries}


def blocks():
    made = []
    rules = alert_rules.alerts()
    for alert, listed in cases.FIRE.items():
        hold = rules[alert].minutes()
        for number, (series, since, *end) in enumerate(listed):
            # Quiet until the condition has held for its time, then firing.
            looks = [firing(alert, max(0, since + hold - 1), 0), firing(alert, since + hold, 1)]
            looks += [firing(alert, at, count) for at, count in zip(end, (1, 0))]
            made.append(block(f"{alert} fires {number}", {**series, **cases.others(alert)}, looks))
    for alert, listed in cases.QUIET.items():
        for number, (series, minute) in enumerate(listed):
            made.append(block(f"{alert} is quiet {number}", series,
                              [firing(alert, at, 0) for at in range(minute % 5, minute + 1, 5)]))
    return made


class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        need(shutil.which("promtool"), "promtool is not installed")

    def promtool(self, *arguments):
        done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def run_blocks(self, tests):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "tests.yml"
            file.write_text(json.dumps({"rule_files": [str(alert_rules.RULES)], "evaluation_interval": "1m",
                                        "group_eval_order": alert_rules.groups(), "tests": tests}))
            self.promtool("test", "rules", file)

    def test_they_are_valid(self):
        self.promtool("check", "rules", alert_rules.RULES)

    def test_every_alert_fires_and_stays_quiet_where_it_should(self):
        self.run_blocks(blocks())

    def test_the_texts_of_an_alert(self):
        series = cases.figures(logit="40x9 250x60")
        self.run_blocks([{"interval": "1m", "input_series": [{"series": k, "values": v} for k, v in series.items()],
                          "alert_rule_test": [{
                              "alertname": "HeadscopeMaxLogitGrowth", "eval_time": "20m",
                              "exp_alerts": [{
                                  "exp_labels": {"severity": "warning", "job": "headscope", "instance": "run:9464",
                                                 "source": "probe"},
                                  "exp_annotations": {
                                      "summary": "Attention logits of run:9464 are growing",
                                      "description": "The largest attention score (probe) is 250, more than twice what "
                                                     "it was within the last hour.",
                                      "runbook_url": "docs/alerts.md#headscopemaxlogitgrowth"}}]}]}])

    def test_what_is_recorded(self):
        series = {**cases.figures(entropy="2.772588722239781x400", collapsed="5x400"),
                  **cases.series("headscope_monitor_seconds_total", "0+6x60", 'phase="tap"'),
                  **cases.series("headscope_monitor_seconds_total", "0+12x60", 'phase="probe"'),
                  **cases.series("headscope_monitor_seconds_total", "0+60x60", 'phase="analysis"'),
                  **cases.TOKENS,
                  **cases.series("headscope_circuit_emerging_step", "400x60", cases.INDUCTION),
                  **cases.series("headscope_circuit_formed_step", "650x60", cases.INDUCTION)}
        wanted = {"instance:headscope_attention_entropy:ratio": 0.5, "instance:headscope_heads_collapsed:ratio": 0.05,
                  "instance:headscope_monitor_seconds:rate5m": 0.3, "instance:headscope_tokens:deriv5m": 100 / 60,
                  "instance:headscope_circuit_lead_steps:difference": 250}
        recorded = {rule.name for rule in alert_rules.rules() if rule.kind == "record"}
        self.assertEqual(set(wanted), recorded)
        self.run_blocks([block("recorded", series, [
            {"expr": f"count(abs({name} - {value!r}) < 1e-9)", "eval_time": "20m",
             "exp_samples": [{"labels": "{}", "value": 1}]} for name, value in wanted.items()])])


if __name__ == "__main__":
    unittest.main(verbosity=2)
