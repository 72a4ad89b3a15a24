"""Reads the shipped alert rules, with the standard library only: promtool judges the syntax."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "docker" / "prometheus" / "rules" / "headscope.yml"
RUNBOOK = ROOT / "docs" / "alerts.md"
MINUTES = {"s": 1 / 60, "m": 1, "h": 60}


class Rule:
    def __init__(self, kind, name, body):
        self.kind, self.name, self.body = kind, name, body

    def field(self, key):
        """The value of a key on its own line, or None."""
        found = re.search(rf"^ +{key}: +(.+)$", self.body, re.MULTILINE)
        return found[1].strip('"') if found else None

    def expression(self):
        return re.search(r"^ +expr: (.*?)(?=^ +(?:for|labels|- )|\Z)", self.body, re.MULTILINE | re.DOTALL)[1]

    def minutes(self):
        """How long the condition must hold."""
        number, unit = re.fullmatch(r"(\d+)([smh])", self.field("for")).groups()
        return int(number) * MINUTES[unit]


def groups():
    """The names of the groups; what is recorded comes first."""
    return re.findall(r"^  - name: (\S+)$", RULES.read_text(encoding="utf-8"), re.MULTILINE)


def rules(path=RULES):
    parts = re.split(r"^ +- (alert|record): (\S+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [Rule(*parts[i:i + 3]) for i in range(1, len(parts), 3)]


def alerts():
    return {rule.name: rule for rule in rules() if rule.kind == "alert"}


def catalogue():
    """Metric -> its labels, from docs/metrics.md, which a test holds to the catalogue in the code."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    table = text.split("<!-- catalogue:begin -->")[1].split("<!-- catalogue:end -->")[0]
    return {name: set(labels.replace(" ", "").split(",")) - {""}
            for name, labels in re.findall(r"^\| `(headscope_\w+)` \| \w+ \| ([^|]*?) *\|", table, re.MULTILINE)}


def metrics_of(expression):
    """The names of headscope's metrics and of recorded series in a PromQL expression."""
    return set(re.findall(r"(?:\w+:)?headscope_\w+(?::\w+)?", expression))
