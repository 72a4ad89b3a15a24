"""`headscope draws`: the published matched-random sets, and what is refused."""

import json
import os
import unittest

from command import DATA, Refusals, answer, main, run

with open(os.path.join(DATA, "pythia1b_reference.json")) as _file:
    PYTHIA = json.load(_file)

# matched_random_seed_sweep_olmo.json of the results that tests/data/README.md names: one set, nine seeds.
OLMO_SET = "2:7,2:11,4:12,12:8,12:10"
OLMO_DRAWS = {
    1: [[2, 3], [2, 8], [4, 8], [12, 3], [12, 14]],
    7: [[2, 13], [2, 14], [4, 1], [12, 4], [12, 12]],
    42: [[2, 10], [2, 13], [4, 10], [12, 1], [12, 15]],
    99: [[2, 0], [2, 14], [4, 8], [12, 6], [12, 11]],
    256: [[2, 9], [2, 14], [4, 3], [12, 7], [12, 12]],
    314: [[2, 1], [2, 12], [4, 15], [12, 6], [12, 14]],
    700: [[2, 12], [2, 14], [4, 15], [12, 5], [12, 12]],
    999: [[2, 2], [2, 4], [4, 14], [12, 1], [12, 7]],
}


def spec(heads):
    return ",".join(f"{layer}:{head}" for layer, list_ in heads.items() for head in list_)


def heads(published):
    return [[int(layer), head] for layer, list_ in published.items() for head in list_]


def named(results, part):
    return next(r["spec"] for r in results if part in r.get("name", r.get("condition", "")))


def drawn(*arguments):
    return [draw["heads"] for draw in answer("draws", *arguments)["draws"]]


class Published(unittest.TestCase):
    def test_the_sweep_with_its_shared_generator(self):
        results = PYTHIA["ablation_threshold_sweep"]["results"]
        thresholds = ["2x", "10x", "30x", "50x"]
        sets = [spec(named(results, "screen_>=" + threshold)) for threshold in thresholds]
        want = [heads(named(results, "matched_random_>=" + threshold)) for threshold in thresholds]
        self.assertEqual(want[3], [[4, 0], [7, 6], [7, 7]])
        several = [argument for one in sets for argument in ("--spec", one)]
        self.assertEqual(drawn(*several, "--heads", "8", "--sweep"), want)
        self.assertEqual(drawn("--spec", "; ".join(sets), "--heads", "8", "--sweep"), want)
        fresh = drawn(*several, "--heads", "8")
        self.assertEqual((fresh[0], fresh[3]), (want[0], [[4, 1], [7, 2], [7, 6]]))

    def test_the_form_of_the_answer(self):
        want = {"draws": [{"seed": 123, "heads": [[4, 1], [7, 2], [7, 6]]}]}
        for sweep in [], ["--sweep"]:
            self.assertEqual(answer("draws", "--spec", "4:4,7:0,7:1", "--heads", "8", "--seed", "123", *sweep), want)

    def test_layers_in_their_own_order_and_full_ones(self):
        results = PYTHIA["ablation_k45"]["results"]
        draw = answer("draws", "--spec", spec(named(results, "top45")), "--heads", "8")["draws"][0]
        self.assertEqual(draw["heads"], heads(named(results, "matched_random")))
        self.assertEqual(draw["short_layers"], [0, 1, 2, 3])

    def test_previous_token_set_and_another_seed(self):
        results = PYTHIA["prev_token_circuit"]["results"]
        found = drawn("--spec", spec(named(results, "prev_token_circuit")), "--heads", "8", "--layers", "16")
        self.assertEqual(found, [heads(named(results, "matched_random"))])
        screen = spec(named(PYTHIA["ablation_threshold_sweep"]["results"], "screen_>=10x"))
        found = drawn("--spec", screen, "--heads", "8", "--seed", "1")
        self.assertEqual(found, [heads(PYTHIA["matched_random_seed_sweep"]["fresh_seed_spec_1"])])

    def test_a_draw_for_each_seed(self):
        seeds = [str(seed) for seed in OLMO_DRAWS]
        found = answer("draws", "--spec", OLMO_SET, "--heads", "16", "--seed", *seeds)["draws"]
        self.assertEqual({draw["seed"]: draw["heads"] for draw in found}, OLMO_DRAWS)


class Trouble(Refusals):
    def test_layers_are_checked_or_said_to_be_unchecked(self):
        spec = ["draws", "--spec", "44:4", "--heads", "8"]
        self.assertIn(b"without --layers any layer", run(*spec).stderr)
        self.assertEqual(run(*spec, "--layers", "45").stderr, b"")
        self.refused(*spec, "--layers", "44", says=["'44:4'", "layer 44", "0..43"])

    def test_specs_that_name_no_set(self):
        for given, *says in [
            ("7:8", "'7:8'", "0..7", "--heads"),
            ("4:4,4:4", "'4:4'", "twice"),
            ("", "empty"),
            ("4:4;", "empty"),
            ("4:4,", "''", "LAYER:HEAD"),
            ("4", "'4'", "LAYER:HEAD"),
            ("4:-1", "'4:-1'", "LAYER:HEAD"),
            ("4:1.5", "'4:1.5'", "LAYER:HEAD"),
        ]:
            self.refused("draws", "--heads", "8", "--spec", given, says=says)
        self.refused("draws", "--spec", "16:0", "--heads", "8", "--layers", "16", says=["'16:0'", "0..15", "--layers"])

    def test_numbers_out_of_range(self):
        self.refused("draws", "--spec", "0:0", "--heads", "0", says=["--heads is 0", "1.."])
        self.refused("draws", "--spec", "0:0", "--heads", "8", "--layers", "0", says=["--layers is 0"])
        self.refused("draws", "--spec", "0:0", "--heads", "8", "--seed=-1", says=["--seed is -1", "0..4294967295"])
        self.refused("draws", "--spec", "0:0", "--heads", "8", "--seed=4294967296", says=["--seed is 4294967296"])
        self.refused("draws", "--heads", "8", says=["--spec is required"])


if __name__ == "__main__":
    main()
