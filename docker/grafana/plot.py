"""Draws the panels of a dashboard from a Prometheus, for looking at them without a Grafana.

    build/dashboard-tools/bin/python docker/grafana/plot.py http://127.0.0.1:9090 headscope-overview out.png NAME=VALUE...

Draws the last hour that has data, with the dashboard's variables set to the VALUEs (run: .* if not given).
"""
import json
import math
import pathlib
import sys
import time
import urllib.parse
import urllib.request

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

DASHBOARDS = pathlib.Path(__file__).resolve().parent / "dashboards"
COLUMNS = 3
STEP_SECONDS = 1


def with_variables(text, variables):
    for name, value in {"run": ".*", "__rate_interval": "10s", "__interval": "2s", **variables}.items():
        text = text.replace(f"${name}", value)
    return text


def ask(prometheus, path, **parameters):
    with urllib.request.urlopen(f"{prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as answer:
        return json.load(answer)["data"]["result"]


def legend(pattern, labels):
    for name, value in labels.items():
        pattern = pattern.replace("{{" + name + "}}", value)
    return pattern


def draw(axis, panel, prometheus, variables, start, end):
    axis.set_title(panel["title"], fontsize=8, loc="left")
    axis.tick_params(labelsize=6)
    lines = 0
    for target in panel["targets"]:
        for series in ask(prometheus, "query_range", query=with_variables(target["expr"], variables), start=start,
                          end=end, step=STEP_SECONDS):
            points = [(float(at) - start, float(value)) for at, value in series["values"]]
            axis.plot(*zip(*points), linewidth=0.9, label=legend(target["legendFormat"], series["metric"]),
                      drawstyle="steps-post" if panel["type"] != "timeseries" else "default")
            lines += math.isfinite(points[-1][1])
    if panel["fieldConfig"]["defaults"].get("custom", {}).get("scaleDistribution", {}).get("type") == "log":
        axis.set_yscale("log")
    if lines:
        axis.legend(fontsize=5, ncols=2, loc="best", framealpha=0.6)
    return lines


def main():
    prometheus, page, file = sys.argv[1:4]
    variables = dict(argument.split("=", 1) for argument in sys.argv[4:])
    panels = json.loads((DASHBOARDS / f"{page}.json").read_text())["panels"]
    end = time.time()
    start = min(float(ask(prometheus, "query", query="min(min_over_time(timestamp(headscope_build_info)[1h:1s]))")
                      [0]["value"][1]), end - 1)
    rows = -(-len(panels) // COLUMNS)
    figure, axes = pyplot.subplots(rows, COLUMNS, figsize=(12, 2.1 * rows), layout="constrained", squeeze=False)
    empty = [panel["title"] for axis, panel in zip(axes.flat, panels)
             if not draw(axis, panel, prometheus, variables, start, end)]
    for axis in list(axes.flat)[len(panels):]:
        axis.remove()
    figure.supxlabel("seconds", fontsize=7)
    figure.savefig(file, dpi=80)
    print(f"{file}: {len(panels)} panels, without data: {', '.join(empty) or 'none'}")


if __name__ == "__main__":
    main()
