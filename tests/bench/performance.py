#!/usr/bin/env python3
"""Writes a table of docs/performance.md, that of the machine's instruction set, from what ./run.sh bench --json FILE measured.

    tests/bench/performance.py FILE [--check]     --check: exit 1 when the page would change
"""
import argparse
import json
import pathlib
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "performance.md"
BEGIN, END = "<!-- table {}:begin -->\n", "<!-- table {}:end -->"


def figure(value, unit):
    if value is None:
        return ""
    text = f"{value:.3g}"
    return text if unit == "relative error" else f"{text} {unit}".strip()


def line(row):
    unit = row["unit"]
    if row["measured"] is None:
        verdict, roof = "not measured", row["note"]
    else:
        verdict = "aim" if row["meets_aim"] else "must" if row["meets_must"] else "**below must**"
        roof = row["roof"]
    spread = "" if row["spread"] is None else f"{100 * row['spread']:.0f} %"
    cells = [row["id"], row["name"], figure(row["must"], unit), figure(row["aim"], unit),
             figure(row["measured"], unit), verdict, spread, roof]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(result):
    machine = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in result["machine"].items())
    head = ["| # | quantity | must | aim | measured | meets | spread | baseline or roof |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    return f"Machine: {machine}.\n\n" + "\n".join(head + [line(row) for row in result["rows"]]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="JSON that ./run.sh bench --json FILE wrote")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page would change")
    arguments = parser.parse_args()
    result = json.loads(pathlib.Path(arguments.file).read_text())
    begin, end = (mark.format(result["machine"]["cpu_capability"]) for mark in (BEGIN, END))
    page = PAGE.read_text()
    if page.count(begin) != 1 or page.count(end) != 1:
        sys.exit(f"{PAGE.name} has no place for this machine's table: add the lines {begin.strip()} and {end}")
    before, rest = page.split(begin)
    _, after = rest.split(end)
    made = before + begin + table(result) + end + after
    if arguments.check:
        return made != page
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
