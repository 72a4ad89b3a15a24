"""Writes docker/grafana/dashboards/*.json from the metric catalogue, with the vendor's own schema (grafana-foundation-sdk).

    build/dashboard-tools/bin/python docker/grafana/generate.py [FOLDER]
"""
import json
import pathlib
import re
import sys

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import ScaleDistribution
from grafana_foundation_sdk.builders.common import ScaleDistributionConfig
from grafana_foundation_sdk.models.dashboard import DataSourceRef, ValueMap, ValueMappingResult, VariableRefresh, VariableSort

import panels

FOLDER = pathlib.Path(__file__).resolve().parent
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
# What Grafana calls the catalogue's units; the others have none.
UNITS = {"seconds": "s"}
THIS_RUN = 'and on (job, instance) headscope_run_info{run=~"$run"}'


def catalogue():
    """Metric -> (labels, unit, meaning), from docs/metrics.md, which a test holds to the code."""
    text = (FOLDER.parents[1] / "docs" / "metrics.md").read_text(encoding="utf-8")
    table = text.split("<!-- catalogue:begin -->")[1].split("<!-- catalogue:end -->")[0]
    rows = (line.split("|") for line in table.splitlines() if line.startswith("| `"))
    return {row[1].strip(" `"): (row[3].strip(), row[4].strip(), row[5].strip()) for row in rows}


CATALOGUE = catalogue()


def check(expression):
    """Every metric is in the catalogue and every selector one of its labels."""
    for metric, selector in re.findall(r"(headscope_\w+)(?:\{([^}]*)\})?", expression):
        labels = CATALOGUE[metric][0].split(",") + ["job", "instance"]
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector):
            if labels[0] != "the facts' names" and label not in labels:
                raise SystemExit(f"{metric} has no label {label}")


def of_this_run(expression):
    """Places the choice of the run behind every metric, or behind the function of its range."""
    return re.sub(r"(?:rate|changes)\(headscope_\w+(?:\{[^}]*\})?\[[^\]]*\]\)|\bheadscope_\w+(?:\{[^}]*\})?",
                  lambda found: f"({found[0]} {THIS_RUN})", expression)


def query(number, panel_query):
    expression, legend = panel_query
    check(expression)
    return (prometheus.Dataquery().expr(of_this_run(expression)).legend_format(legend).ref_id("ABCDEFGH"[number])
            .datasource(SOURCE))


def described(panel):
    """The catalogue's words on the panel's metrics, and its unit."""
    metrics = list(dict.fromkeys(re.findall(r"headscope_\w+", " ".join(expression for expression, _ in panel.queries))))
    return " ".join(CATALOGUE[metric][2] for metric in metrics), CATALOGUE[metrics[0]][1]


def build_panel(panel):
    text, unit = described(panel)
    made = {"lines": timeseries, "log": timeseries, "number": stat, "states": statetimeline}[panel.kind].Panel()
    made = made.title(panel.title).description(text).datasource(SOURCE).span(panel.width).height(panel.height)
    if panel.kind in ("lines", "log"):
        made = made.axis_label("" if unit == "1" or unit in UNITS else unit).line_width(1).span_nulls(True)
    if panel.kind == "log":
        made = made.scale_distribution(ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10))
    if panel.kind == "states":
        made = made.mappings([ValueMap(options={str(value): ValueMappingResult(text=text, index=value)
                                                for value, text in enumerate(panel.states)})])
    if panel.unit or unit in UNITS:
        made = made.unit(panel.unit or UNITS[unit])
    for number, panel_query in enumerate(panel.queries):
        made = made.with_target(query(number, panel_query))
    return made


def variable(name, expression, several):
    check(expression)
    return (dashboard.QueryVariable(name).label(name).datasource(SOURCE).query(expression).multi(several)
            .include_all(several).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.NUMERICAL_ASC))


def build_dashboard(page):
    built = (dashboard.Dashboard(page.title).uid(page.uid).tags(["headscope"]).readonly().refresh("15s")
             .time("now-1h", "now").timezone("browser")
             .with_variable(dashboard.DatasourceVariable("datasource").label("data source").type("prometheus")))
    for name, expression in panels.VARIABLES.items():
        if name in page.variables:
            built = built.with_variable(variable(name, expression, name == "run" and page.several_runs))
    for kind, colour in panels.EVENTS.items():
        expression = f'changes(headscope_events_total{{kind="{kind}",level="circuit"}}[$__interval]) > 0'
        check(expression)
        built = built.annotation(dashboard.AnnotationQuery().name(kind).datasource(SOURCE).enable(True)
                                 .icon_color(colour).expr(of_this_run(expression)))
    for panel in page.panels:
        built = built.with_panel(build_panel(panel))
    return json.dumps(built.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER / "dashboards"
    for page in panels.PAGES:
        (folder / f"{page.uid}.json").write_text(build_dashboard(page), encoding="utf-8")


if __name__ == "__main__":
    main()
