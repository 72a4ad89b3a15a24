"""Every alert has a duration, a severity, texts, a section in the runbook and both tests; no rule asks for an unknown metric."""
import re
import unittest

import alert_rules
import cases


class Lint(unittest.TestCase):
    def test_every_alert_is_complete(self):
        for name, rule in alert_rules.alerts().items():
            with self.subTest(name):
                self.assertRegex(rule.field("for"), r"^\d+[smh]$")
                self.assertIn(rule.field("severity"), ("critical", "warning", "info"))
                self.assertTrue(rule.field("summary"))
                self.assertTrue(rule.field("description"))
                self.assertEqual(rule.field("runbook_url"), f"docs/alerts.md#{name.lower()}")

    def test_every_alert_has_a_runbook_section_and_the_other_way_round(self):
        sections = set(re.findall(r"^### (Headscope\w+)$", alert_rules.RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE))
        self.assertEqual(sections, set(alert_rules.alerts()))

    def test_every_runbook_section_says_meaning_and_action(self):
        text = alert_rules.RUNBOOK.read_text(encoding="utf-8")
        for name in alert_rules.alerts():
            section = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)[1]
            for part in ("**Means**", "**Do**", "**False when**"):
                self.assertIn(part, section, name)

    def test_every_alert_is_tested_firing_and_quiet(self):
        self.assertEqual(set(cases.FIRE), set(alert_rules.alerts()))
        self.assertEqual(set(cases.QUIET), set(alert_rules.alerts()))

    def test_rules_ask_for_metrics_of_the_catalogue_only(self):
        known = set(alert_rules.catalogue())
        self.assertGreater(len(known), 50)
        recorded = {rule.name for rule in alert_rules.rules() if rule.kind == "record"}
        for rule in alert_rules.rules():
            self.assertLessEqual(alert_rules.metrics_of(rule.expression()), known | recorded, rule.name)
        used = set().union(*(alert_rules.metrics_of(rule.expression()) for rule in alert_rules.rules()))
        self.assertGreater(len(used), 20)


if __name__ == "__main__":
    unittest.main(verbosity=2)
