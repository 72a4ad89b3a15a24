"""Series on which each alert must fire and on which it must stay quiet.

A case is (series, minute): series as promtool writes them, one value a minute; the alert's condition holds from
`minute` on (FIRE; where two more are given, it still holds at the first of them and no longer at the second), or never
up to `minute` (QUIET).
"""
import re

TARGET = 'job="headscope",instance="run:9464"'


def spelt_out(values):
    """Promtool repeats numbers, but neither NaN nor infinity."""
    return re.sub(r"(NaN|\+Inf)x(\d+)", lambda found: " ".join([found[1].strip("+")] * (int(found[2]) + 1)), values)


def series(name, values, labels=""):
    values = spelt_out(values)
    return {f"{name}{{{TARGET}{',' + labels if labels else ''}}}": values}


def probe(name, values, labels=""):
    return series(name, values, 'source="probe"' + (f",{labels}" if labels else ""))


INDUCTION = 'pattern="induction"'


def state(name, values):
    return series("headscope_circuit_state", values, f'{INDUCTION},state="{name}"')


def figures(logit="5x400", sink="0.1x400", entropy="2x400", collapsed="0x400", heads="100x400"):
    """The figures over all heads; None leaves one out."""
    given = {"headscope_heads": heads, "headscope_heads_highest_max_logit": logit,
             "headscope_heads_mean_sink_mass_ratio": sink, "headscope_heads_median_attention_entropy_nats": entropy,
             "headscope_heads_collapsed": collapsed, "headscope_context_tokens": "256x400"}
    return {key: value for name, values in given.items() if values for key, value in probe(name, values).items()}


def of_training(probed):
    return {key.replace('source="probe"', 'source="train"'): values for key, values in probed.items()}


DEADLINE = series("headscope_circuit_deadline_tokens", "1000x60", INDUCTION)
TOKENS = series("headscope_tokens", "0+100x60")
# What a Pushgateway adds to the figures of a run that has ended.
PUSHED = series("push_time_seconds", "540x120")
OTHERS_PUSHED = {'push_time_seconds{job="headscope",instance="other:9464"}': "540x120",
                 'push_time_seconds{job="other",instance="run:9464"}': "540x120"}
BUILD = series("headscope_build_info", "1x120", 'version="1"')
OTHER_PATTERN = 'pattern="self"'

FIRE = {
    "HeadscopeInductionSelective": [
        ({**probe("headscope_heads_highest_selectivity_ratio", "2x4 60x30", INDUCTION),
          **series("headscope_circuit_formed_threshold_ratio", "50x40", INDUCTION)}, 5)],
    "HeadscopeCircuitEmerging": [(state("emerging", "0x4 1x30"), 5)],
    "HeadscopeCircuitFormed": [
        # The first scrape may see it formed already; a later formation is another one.
        (series("headscope_circuit_formed_step", "600x17", INDUCTION), 0, 14, 17),
        (series("headscope_circuit_formed_step", "_x20 600x20", INDUCTION), 20),
        (series("headscope_circuit_formed_step", "600x40 900x20", INDUCTION), 41)],
    "HeadscopeCircuitLost": [
        (state("lost", "0x4 1x400"), 5, 364, 371),
        ({**state("formed", "1x399 0x30"), **state("lost", "0x399 1x30")}, 400)],
    "HeadscopeCircuitNotCausal": [(state("not_causal", "0x4 1x30"), 5)],
    "HeadscopeCircuitLate": [
        ({**DEADLINE, **TOKENS}, 11),
        # Another pattern's formation does not count.
        ({**DEADLINE, **TOKENS, **series("headscope_circuit_formed_tokens", "500x60", OTHER_PATTERN)}, 11)],
    "HeadscopeDeadlineUnchecked": [
        ({**DEADLINE, **state("dormant", "1x60")}, 0),
        ({**DEADLINE, **TOKENS}, 0),
        ({**DEADLINE, **TOKENS, **series("headscope_circuit_state", "1x60", OTHER_PATTERN + ',state="dormant"')}, 0)],
    "HeadscopeMaxLogitGrowth": [
        (figures(logit="40x9 110x70"), 10, 66, 72),
        (figures(logit="40x9 +Infx60"), 10)],
    "HeadscopeEntropyCollapse": [(figures(entropy="2x9 0.1x60"), 10)],
    "HeadscopeSinkExplosion": [
        (figures(sink="0.65x9 0.9x400"), 10, 366, 372),
        (figures(sink="0.6x9 0.7x240 0.85x60"), 251)],
    "HeadscopeHeadCollapse": [(figures(collapsed="25x9 26x60"), 10)],
    "HeadscopeFiguresAbsent": [
        # Those of the training batch are no substitute.
        ({**figures(**{name: None}), **of_training(figures())}, 0) for name in ("logit", "sink", "entropy", "collapsed")],
    "HeadscopeNonfiniteReadings": [({**probe("headscope_heads_nonfinite", "0x4 1x30"), **OTHERS_PUSHED}, 5)],
    "HeadscopeLossNaN": [({**series("headscope_loss", "3x4 NaNx30"), **OTHERS_PUSHED}, 5)],
    "HeadscopeMonitorStale": [
        # Promtool's clock starts at 0: the last measurement was at minute 9.
        ({**series("headscope_last_snapshot_timestamp_seconds", "0+60x9 540x60"), **OTHERS_PUSHED}, 40)],
    "HeadscopeProbesStale": [
        ({**probe("headscope_source_step", "100x60"),
          **series("headscope_source_step", "100+500x60", 'source="train"'),
          **series("headscope_step", "100+500x60")}, 11)],
    "HeadscopeNoSnapshot": [(BUILD, 0)],
    "HeadscopeTapsMissing": [(series("headscope_taps_missing_total", "0x4 1x60"), 5, 18, 21)],
    "HeadscopeErrors": [(series("headscope_errors_total", "0x4 1x60", 'kind="probe"'), 5, 18, 21)],
    "HeadscopeScrapeDown": [(series("up", "1x4 0x30"), 5)],
    "HeadscopeScrapeAbsent": [({'up{job="node"}': "1x40"}, 0)],
}

# An alert must not look at NaN as at a number, nor at another run's figures.
OTHER_RUN = {'headscope_tokens{job="headscope",instance="other:9464"}': "0+100x60"}

QUIET = {
    "HeadscopeInductionSelective": [
        ({**probe("headscope_heads_highest_selectivity_ratio", "49x40", INDUCTION),
          **series("headscope_circuit_formed_threshold_ratio", "50x40", INDUCTION)}, 40),
        ({**probe("headscope_heads_highest_selectivity_ratio", "NaNx40", INDUCTION),
          **series("headscope_circuit_formed_threshold_ratio", "50x40", INDUCTION)}, 40),
        ({**probe("headscope_heads_highest_selectivity_ratio", "60x40", OTHER_PATTERN),
          **series("headscope_circuit_formed_threshold_ratio", "50x40", OTHER_PATTERN)}, 40)],
    "HeadscopeCircuitEmerging": [
        (state("emerging", "0x40"), 40),
        (state("formed", "1x40"), 40)],
    "HeadscopeCircuitFormed": [(series("headscope_circuit_emerging_step", "600x60", INDUCTION), 40)],
    "HeadscopeCircuitLost": [
        (state("lost", "0x40"), 40),
        (state("formed", "1x40"), 40)],
    "HeadscopeCircuitNotCausal": [
        (state("not_causal", "0x40"), 40),
        (state("unspecific", "1x40"), 40),
        (state("formed", "1x40"), 40)],
    "HeadscopeCircuitLate": [
        ({**DEADLINE, **TOKENS, **series("headscope_circuit_formed_tokens", "900x60", INDUCTION)}, 60),
        ({**DEADLINE, **series("headscope_tokens", "1000x60")}, 60),
        ({**DEADLINE, **OTHER_RUN}, 60),
        (TOKENS, 60)],
    "HeadscopeDeadlineUnchecked": [({**DEADLINE, **TOKENS, **state("dormant", "1x60")}, 60), (TOKENS, 60)],
    "HeadscopeMaxLogitGrowth": [
        (figures(logit="10x9 99x90"), 90),       # grows, and stays low
        (figures(logit="110+0.1x90"), 90),       # high, and stays where it is
        (figures(logit="100x9 150x90"), 90),     # by half
        (figures(logit="60+0.5x200"), 200),      # slowly
        (figures(logit="40x9 NaNx90"), 90)],
    "HeadscopeEntropyCollapse": [(figures(entropy="5x9 0.12x90"), 90), (figures(entropy="NaNx90"), 90)],
    "HeadscopeSinkExplosion": [(figures(sink="0.85x90"), 90), (figures(sink="0.1x9 0.79x90"), 90),
                               (figures(sink="0.66x9 0.85x90"), 90), (figures(sink="0.6x9 0.63x360 0.82x60"), 430)],
    "HeadscopeHeadCollapse": [(figures(collapsed="25x90"), 90)],
    "HeadscopeFiguresAbsent": [(figures(), 90), (figures(heads=None), 90)],
    "HeadscopeNonfiniteReadings": [
        (probe("headscope_heads_nonfinite", "0x40"), 40),
        (probe("headscope_heads_nonfinite", "0x9 1 0x30"), 40),
        ({**probe("headscope_heads_nonfinite", "1x40"), **PUSHED}, 40)],
    "HeadscopeLossNaN": [(series("headscope_loss", "3x40"), 40), (series("headscope_loss", "+Infx40"), 40),
                         ({**series("headscope_loss", "NaNx40"), **PUSHED}, 40)],
    "HeadscopeMonitorStale": [
        (series("headscope_last_snapshot_timestamp_seconds", "0+60x90"), 90),
        (series("headscope_last_snapshot_timestamp_seconds", "0x29 1740x29 3480x29"), 85),
        ({**series("headscope_last_snapshot_timestamp_seconds", "540x90"), **PUSHED}, 90)],
    "HeadscopeProbesStale": [
        # Probed in time, and another run's steps.
        ({**probe("headscope_source_step", "0x49 25000x49"), **series("headscope_step", "0+500x10 5000x38 25000+50x99")}, 98),
        ({**probe("headscope_source_step", "100x60"), 'headscope_step{job="headscope",instance="other:9464"}': "9000x60"},
         60)],
    "HeadscopeNoSnapshot": [
        ({**BUILD, **series("headscope_last_snapshot_timestamp_seconds", "0+60x90")}, 90)],
    "HeadscopeTapsMissing": [
        (series("headscope_taps_missing_total", "3x60"), 60),
        (series("headscope_taps_missing_total", "7x9 0x60"), 60)],      # another process of the run
    "HeadscopeErrors": [(series("headscope_errors_total", "3x60", 'kind="probe"'), 60)],
    "HeadscopeScrapeDown": [(series("up", "1x60"), 60), ({'up{job="node",instance="a"}': "0x60"}, 60)],
    "HeadscopeScrapeAbsent": [(series("up", "0x60"), 60)],
}


def others(alert):
    """What two runs that are quiet show meanwhile, one on another machine and one under another job."""
    if alert == "HeadscopeScrapeAbsent":
        return {}
    quiet = QUIET[alert][0][0]
    return {**{key.replace("run:9464", "quiet:9464"): values for key, values in quiet.items()},
            **{key.replace('job="headscope"', 'job="quiet"'): values for key, values in quiet.items()}}
