"""What the summary says of Python programs that skipped: every skip, with its reason."""
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
