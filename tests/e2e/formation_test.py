"""Induction forms, is flagged first, and is verified in two layers; it is not called in one.

Three seeds of two layers and one of one layer, two at a time. Formation is asserted over the seeds within a range of
steps, never at an exact one.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

from demo import BIN, Demo

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from needs import need  # noqa: E402

STEPS = 1500
FORMED_BETWEEN = (400, STEPS)
NAMES = ["headscope_head_participation_ratio", "headscope_head_pr_integral",
         'headscope_head_selectivity_ratio{', 'pattern="induction"', "headscope_circuit_state", "headscope_step ",
         "headscope_tokens ", "headscope_errors_total{", "headscope_monitor_seconds_total{"]


class Formation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scrape = None
        first = [Demo("--seed", 0, "--steps", STEPS), Demo("--seed", 1, "--steps", STEPS)]
        deadline = time.monotonic() + 300
        # A scrape once heads have been read, while training goes on.
        while time.monotonic() < deadline and first[0].process.poll() is None:
            text = first[0].scrape()
            if text and "headscope_head_selectivity_ratio{" in text:
                cls.scrape = text
                break
            time.sleep(0.5)
        for run in first:
            run.wait()
        second = [Demo("--seed", 2, "--steps", STEPS), Demo("--seed", 0, "--layers", 1, "--steps", STEPS)]
        for run in second:
            run.wait()
        cls.two_layers = first + second[:1]
        cls.one_layer = second[1]

    @classmethod
    def tearDownClass(cls):
        for run in cls.two_layers + [cls.one_layer]:
            run.close()

    def test_every_run_ends_well(self):
        for run in self.two_layers + [self.one_layer]:
            self.assertEqual(run.process.returncode, 0, run.output()[-2000:])
            health = run.summary()["health"]
            self.assertEqual({k: v for k, v in health["errors"].items() if v}, {})
            self.assertGreaterEqual(health["probes"], 40)
            self.assertEqual(health["snapshots_dropped"], 0)

    def test_induction_forms_and_is_verified_in_two_layers(self):
        verified = []
        for run in self.two_layers:
            circuit = run.circuit("induction")
            print("induction:", circuit)
            if circuit["verified_step"] is not None and circuit["formed_step"] is not None:
                self.assertLessEqual(circuit["formed_step"], circuit["verified_step"])
                if FORMED_BETWEEN[0] <= circuit["formed_step"] <= FORMED_BETWEEN[1]:
                    verified.append(circuit)
        self.assertGreaterEqual(len(verified), 2)
        for circuit in verified:
            self.assertTrue(all(layer == 1 for layer, _ in circuit["heads"]), circuit)
            self.assertGreater(circuit["effect"], 3 * max(circuit["control_mean"], 0))

    def test_the_flag_comes_before_formation(self):
        leads = [run.circuit("induction") for run in self.two_layers]
        leads = [c for c in leads if c["formed_step"] is not None]
        self.assertGreaterEqual(len(leads), 2)
        for circuit in leads:
            self.assertIsNotNone(circuit["emerging_step"])
            self.assertLess(circuit["emerging_step"], circuit["formed_step"])

    def test_one_layer_calls_no_induction_but_reports_the_others(self):
        circuit = self.one_layer.circuit("induction")
        self.assertEqual(circuit["state"], "dormant", circuit)
        self.assertIsNone(circuit["formed_step"])
        self.assertIsNone(circuit["emerging_step"])
        formed = [c["pattern"] for c in self.one_layer.summary()["circuits"] if c["formed_step"] is not None]
        self.assertIn("previous-token", formed)

    def test_a_scrape_during_training_is_clean_and_complete(self):
        self.assertIsNotNone(self.scrape, "no scrape was answered while training")
        for name in NAMES:
            self.assertIn(name, self.scrape)
        promtool = shutil.which("promtool")
        need(promtool, "promtool is not installed; ./run.sh setup fetches it")
        check = subprocess.run([promtool, "check", "metrics"], input=self.scrape, text=True, capture_output=True)
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)

    def test_the_history_feeds_rank_and_replay(self):
        run = self.two_layers[0]
        table = subprocess.run([BIN / "headscope", "history", run.run_dir, "--csv"], capture_output=True, text=True)
        self.assertEqual(table.returncode, 0, table.stderr)
        csv = run.run_dir / "readings.csv"
        csv.write_text(table.stdout)
        ranked = json.loads(subprocess.check_output([BIN / "headscope", "rank", "--axis", "ln_tokens", csv]))
        self.assertEqual(len(ranked["heads"]), 16)
        replayed = json.loads(subprocess.check_output([BIN / "headscope", "replay", "--context", "64", csv]))
        formed = {(e["layer"], e["head"]) for e in replayed["events"]
                  if e["state"] == "formed" and e["pattern"] == "induction"}
        self.assertTrue({tuple(head) for head in run.circuit("induction")["heads"]} <= formed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
