"""Prints one table of what a test run did: tests, failures, skips and time by label, beside the budgets of docs/ci.md.

summary.py --ledger docs/ci.md [--seconds NAME=S]... [PREFIX=]BUILD_FOLDER...

Reads <folder>/tests/results: ctest.junit of ctest and one XML a GoogleTest program. Exits 1 when a test failed or none ran.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field


@dataclass
class Row:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0


@dataclass
class Report:
    rows: dict = field(default_factory=dict)
    skips: list = field(default_factory=list)
    failures: list = field(default_factory=list)

    def row(self, name):
        return self.rows.setdefault(name, Row())


def labels_of(folder):
    listing = subprocess.run(["ctest", "--show-only=json-v1"], cwd=folder, capture_output=True, text=True, check=True)
    labels = {}
    for test in json.loads(listing.stdout)["tests"]:
        for prop in test.get("properties", []):
            if prop["name"] == "LABELS":
                labels[test["name"]] = prop["value"][0]
    return labels


def count_gtest(path, row, report, where):
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{where}: {case.get('classname')}.{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None:
            row.failed += 1
            report.failures.append(name)
        elif skipped is not None:
            row.skipped += 1
            lines = (skipped.text or skipped.get("message") or "no reason given").strip().splitlines()
            report.skips.append(f"{name}: {lines[-1]}")
        elif case.get("status") == "run":
            row.passed += 1


def count_unittest(output, row, report, where):
    """Python's unittest passes a program whose tests were skipped: `test_x (...) ... skipped 'why'`, verbosity 2."""
    # Whole classes skip in setUpClass, single steps in indented subtests; a docstring has a line of its own.
    reasons = re.findall(r"^ *((?:test|setUp)\w+) \([^\n]*\)(?:\n[^\n]+?)? \.\.\. skipped (['\"])(.*?)\2$", output,
                         re.MULTILINE)
    report.skips += [f"{where}: {test}: {reason}" for test, _, reason in reasons]
    total = re.search(r"^OK \(.*?skipped=(\d+)", output, re.MULTILINE)
    skipped = max(int(total[1]) if total else 0, len(reasons))
    if skipped > len(reasons):
        report.skips.append(f"{where}: {skipped - len(reasons)} more, whose reasons could not be read")
    row.skipped += skipped
    row.passed += 0 if re.search(r"^Ran 0 tests", output, re.MULTILINE) else 1


def count_folder(folder, prefix, report):
    results = folder / "tests" / "results"
    labels = labels_of(folder)
    for case in ElementTree.parse(results / "ctest.junit").getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        label = f"{prefix} {labels.get(name, 'unlabelled')}".strip()
        row = report.row(label)
        row.seconds += float(case.get("time") or 0)
        gtest = results / f"{name}.xml"
        failed_before = row.failed
        if gtest.exists():
            count_gtest(gtest, row, report, f"{label}: {name}")
        elif status == "run":
            count_unittest(case.findtext("system-out") or "", row, report, f"{label}: {name}")
        elif status in ("notrun", "disabled"):
            row.skipped += 1
            output = (case.findtext("system-out") or "").strip().splitlines()
            reason = [line for line in output if line.startswith("skipped:")] or output[-1:] or ["no reason given"]
            report.skips.append(f"{label}: {name}: {reason[0].removeprefix('skipped:').strip()}")
        # A program that crashed or timed out has failed even if every case it wrote down passed.
        if status == "fail" and row.failed == failed_before:
            row.failed += 1
            report.failures.append(f"{label}: {name}")


def budgets_of(ledger):
    """Rows `| name | seconds | ... |` of the time ledger."""
    budgets = {}
    for line in ledger.read_text().splitlines():
        match = re.match(r"\|\s*([a-z][a-z0-9 -]*?)\s*\|\s*(\d+)\s*\|", line)
        if match:
            budgets[match[1]] = int(match[2])
    return budgets


def print_report(report, steps, budgets):
    print(f"\n{'':14}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>9}{'budget':>8}")
    total = 0.0
    for name, seconds in steps.items():
        total += seconds
        print(f"{name:14}{'':24}{seconds:9.0f}{budgets.get(name, '-'):>8}")
    for name, row in report.rows.items():
        total += row.seconds
        print(f"{name:14}{row.passed:8}{row.failed:8}{row.skipped:8}{row.seconds:9.0f}{budgets.get(name, '-'):>8}")
    print(f"{'sum':14}{'':24}{total:9.0f}{budgets.get('sum', '-'):>8}")
    measured = {**steps, **{name: row.seconds for name, row in report.rows.items()}, "sum": total}
    for name, seconds in measured.items():
        if seconds > budgets.get(name, float("inf")):
            print(f"over budget: {name} took {seconds:.0f} s of {budgets[name]} s (docs/ci.md)")
    for title, lines in (("Skipped", report.skips), ("Failed", report.failures)):
        if lines:
            print(f"\n{title}:")
            for line in lines:
                print(f"  {line}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", action="append", default=[], metavar="NAME=S")
    parser.add_argument("folders", nargs="+", metavar="[PREFIX=]FOLDER")
    arguments = parser.parse_intermixed_args()
    report = Report()
    for entry in arguments.folders:
        prefix, _, folder = entry.rpartition("=")
        count_folder(pathlib.Path(folder), prefix, report)
    steps = {name: float(value) for name, _, value in (entry.partition("=") for entry in arguments.seconds)}
    print_report(report, steps, budgets_of(arguments.ledger))
    rows = report.rows.values()
    passed, failed = sum(row.passed for row in rows), sum(row.failed for row in rows)
    print(f"\n{passed} passed, {failed} failed, {sum(row.skipped for row in rows)} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
