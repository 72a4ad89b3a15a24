"""What the summary says of programs that skipped: every skip, with its reason."""
import pathlib
import tempfile
import unittest

import summary


def counted(output):
    report = summary.Report()
    row = report.row("e2e")
    summary.count_unittest(output, row, report, "e2e: x_test")
    return row, report.skips


class Skips(unittest.TestCase):
    def test_one_test(self):
        row, skips = counted("test_a (m.C.test_a) ... skipped 'no tool'\n\nRan 2 tests in 0.1s\n\nOK (skipped=1)\n")
        self.assertEqual((row.passed, row.skipped, skips), (1, 1, ["e2e: x_test: test_a: no tool"]))

    def test_a_whole_class_has_not_passed(self):
        row, skips = counted("setUpClass (m.C) ... skipped 'no server'\n\nRan 0 tests in 0.0s\n\nOK (skipped=1)\n")
        self.assertEqual((row.passed, row.skipped, skips), (0, 1, ["e2e: x_test: setUpClass: no server"]))

    def test_a_step(self):
        _, skips = counted("  test_a (m.C.test_a) (i=1) ... skipped 'odd'\n\nRan 1 test\n\nOK (skipped=1)\n")
        self.assertEqual(skips, ["e2e: x_test: test_a: odd"])

    def test_what_cannot_be_read_is_counted(self):
        row, skips = counted("test_a ... something new\n\nRan 3 tests in 0.1s\n\nOK (skipped=2)\n")
        self.assertEqual((row.skipped, len(skips)), (2, 1))

    def test_none(self):
        row, skips = counted("\nRan 3 tests in 0.1s\n\nOK\n")
        self.assertEqual((row.passed, row.skipped, skips), (1, 0, []))


class Programs(unittest.TestCase):
    """A GoogleTest program's file: a skip after a failure hides nothing, and one without words is still named."""

    def test_a_failure_counts_before_a_skip(self):
        cases = ('<testcase classname="A" name="skips" status="run"><skipped message="a.cpp:1&#x0A;no tool"/></testcase>'
                 '<testcase classname="A" name="fails" status="run"><failure/><skipped message="late"/></testcase>'
                 '<testcase classname="A" name="mute" status="run"><skipped/></testcase>'
                 '<testcase classname="A" name="passes" status="run"/>')
        report = summary.Report()
        row = report.row("unit")
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "a.xml"
            file.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
            summary.count_gtest(file, row, report, "unit: a")
        self.assertEqual((row.passed, row.failed, row.skipped), (1, 1, 2))
        self.assertEqual(report.failures, ["unit: a: A.fails"])
        self.assertEqual(report.skips, ["unit: a: A.skips: no tool", "unit: a: A.mute: no reason given"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
