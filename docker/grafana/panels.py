"""What the dashboards show: pages, panels and their queries. The words and units come from the catalogue."""
from typing import NamedTuple

VARIABLES = {
    "run": "label_values(headscope_run_info, run)",
    "pattern": "label_values(headscope_circuit_state, pattern)",
    "layer": "label_values(headscope_head_finite, layer)",
    "head": 'label_values(headscope_head_finite{layer="$layer"}, head)',
}
EVENTS = {"emerging": "yellow", "formed": "green", "verified": "blue", "unspecific": "orange", "lost": "red"}


class Panel(NamedTuple):
    title: str
    queries: list
    kind: str = "lines"
    width: int = 12
    height: int = 8
    unit: str = ""
    states: tuple = ("no", "yes")  # what the values 0, 1, ... of a state mean


class Page(NamedTuple):
    uid: str
    title: str
    variables: tuple
    panels: list
    several_runs: bool = False


OVERVIEW = Page("headscope-overview", "headscope: overview", ("run",), several_runs=True, panels=[
    Panel("Step", [("headscope_step", "{{instance}}")], "number", 6, 4, "short"),
    Panel("Tokens", [("headscope_tokens", "{{instance}}")], "number", 6, 4, "short"),
    Panel("Formed circuits", [('sum by (job, instance) (headscope_circuit_state{state=~"formed|verified|unspecific"})',
                               "{{instance}}")], "number", 6, 4),
    Panel("Heads that are not finite", [('headscope_heads_nonfinite', "{{source}}")], "number", 6, 4),
    Panel("Loss", [("headscope_loss", "{{instance}}")]),
    Panel("Circuits", [('headscope_circuit_state{state="emerging"} * 1 + on (job, instance, pattern) '
                        'headscope_circuit_state{state="formed"} * 2 + on (job, instance, pattern) '
                        'headscope_circuit_state{state="verified"} * 3 + on (job, instance, pattern) '
                        'headscope_circuit_state{state="unspecific"} * 4', "{{pattern}}")], "states",
          states=("other", "emerging", "formed", "verified", "unspecific")),
    Panel("Best selectivity", [('headscope_heads_highest_selectivity_ratio{source="probe"}', "{{pattern}}")], "log"),
    Panel("Participation ratio", [('headscope_heads_median_participation_ratio{source="probe"}', "median"),
                                  ('headscope_heads_lowest_participation_ratio{source="probe"}', "lowest")]),
    Panel("Largest logit", [("headscope_heads_highest_max_logit", "{{source}}")]),
    Panel("Attention entropy", [("headscope_heads_median_attention_entropy_nats", "{{source}} median"),
                                ("headscope_heads_lowest_attention_entropy_nats", "{{source}} lowest")]),
    Panel("Attention on position 0", [("headscope_heads_mean_sink_mass_ratio", "{{source}}")], unit="percentunit"),
    Panel("Collapsed heads", [("headscope_heads_collapsed", "{{source}}")]),
])

PATTERN = Page("headscope-pattern", "headscope: one pattern", ("run", "pattern"), [
    Panel("State", [('headscope_circuit_state{pattern="$pattern"}', "{{state}}")], "states", 24, 5),
    Panel("The ten most selective heads",
          [('topk(10, headscope_head_selectivity_ratio{source="probe",pattern="$pattern"})', "{{layer}}.{{head}}"),
           ('headscope_circuit_formed_threshold_ratio{pattern="$pattern"}', "threshold")], "log", 12, 9),
    Panel("Their match margin",
          [('topk(10, headscope_head_match_margin_z{source="probe",pattern="$pattern"})', "{{layer}}.{{head}}"),
           ('headscope_circuit_critical_margin_z{pattern="$pattern"}', "critical")], "lines", 12, 9),
    Panel("Attention mass", [('topk(10, headscope_head_attention_mass_ratio{source="probe",pattern="$pattern"})',
                              "{{layer}}.{{head}}")], unit="percentunit"),
    Panel("Heads of the circuit", [('headscope_circuit_heads{pattern="$pattern"}', "heads")]),
    Panel("Ablation", [('headscope_ablation_effect_nats{pattern="$pattern"}', "{{metric}} circuit"),
                       ('headscope_ablation_control_mean_nats{pattern="$pattern"}', "{{metric}} controls")]),
    Panel("Steps", [('headscope_circuit_emerging_step{pattern="$pattern"}', "emerging"),
                    ('headscope_circuit_formed_step{pattern="$pattern"}', "formed")], "number"),
])

ONE_HEAD = 'layer="$layer",head="$head"'
HEAD = Page("headscope-head", "headscope: one head", ("run", "layer", "head"), [
    Panel("Selectivity", [(f'headscope_head_selectivity_ratio{{{ONE_HEAD},source="probe"}}', "{{pattern}}")], "log"),
    Panel("Attention mass", [(f'headscope_head_attention_mass_ratio{{{ONE_HEAD},source="probe"}}', "{{pattern}}")],
          unit="percentunit"),
    Panel("Participation ratio", [(f"headscope_head_participation_ratio{{{ONE_HEAD}}}", "{{source}}"),
                                  (f"headscope_head_null_participation_ratio{{{ONE_HEAD}}}", "on random tokens")]),
    Panel("Integral", [(f"headscope_head_pr_integral{{{ONE_HEAD}}}", "{{source}}")]),
    Panel("Entropy", [(f"headscope_head_attention_entropy_nats{{{ONE_HEAD}}}", "{{source}}")]),
    Panel("Largest logit", [(f"headscope_head_max_logit{{{ONE_HEAD}}}", "{{source}}")]),
    Panel("Output norm", [(f"headscope_head_output_norm{{{ONE_HEAD}}}", "{{source}}")]),
    Panel("Sink and prefix matching", [(f"headscope_head_sink_mass_ratio{{{ONE_HEAD}}}", "sink {{source}}"),
                                       (f"headscope_head_prefix_matching_ratio{{{ONE_HEAD}}}", "prefix matching")],
          unit="percentunit"),
    Panel("Finite", [(f"headscope_head_finite{{{ONE_HEAD}}}", "{{source}}")], "number", 12, 4),
    Panel("Specialising", [(f"headscope_head_specialising{{{ONE_HEAD}}}", "{{source}}")], "number", 12, 4),
])

HEALTH = Page("headscope-health", "headscope: the monitor", ("run",), several_runs=True, panels=[
    Panel("Age of the newest measurement",
          [("time() - headscope_last_snapshot_timestamp_seconds", "{{instance}}")], "number", 8, 4, "s"),
    Panel("Budget used", [("headscope_budget_used_ratio", "{{instance}}")], "number", 8, 4, "percentunit"),
    Panel("Heads left out of a scrape", [("headscope_heads_left_out", "{{instance}}")], "number", 8, 4),
    Panel("Time spent", [("rate(headscope_monitor_seconds_total[$__rate_interval])", "{{phase}}")],
          unit="percentunit"),
    Panel("Errors", [("headscope_errors_total", "{{kind}}")]),
    Panel("Measured", [("rate(headscope_measured_steps_total[$__rate_interval])", "steps"),
                       ("rate(headscope_probes_total[$__rate_interval])", "probes"),
                       ("rate(headscope_taps_total[$__rate_interval])", "taps")]),
    Panel("Missed", [("headscope_taps_missing_total", "taps missing"), ("headscope_taps_skipped_total", "taps skipped"),
                     ("headscope_snapshots_dropped_total", "snapshots dropped"), ("headscope_deferred_total", "deferred"),
                     ("headscope_nonfinite_readings_total", "readings not finite")]),
    Panel("Series shown at most and left out", [("headscope_series_cap", "cap"), ("headscope_series_left_out", "left out")]),
    Panel("Steps between probes", [("headscope_probe_interval_steps", "{{instance}}")]),
])

PAGES = [OVERVIEW, PATTERN, HEAD, HEALTH]
