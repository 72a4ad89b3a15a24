"""`headscope rank` and `replay` on phases and on the files that trajectories were published in."""

import gzip
import json
import math
import os
import tempfile
import unittest

from command import DATA, Refusals, answer, main, run, states

PYTHIA = os.path.join(DATA, "pythia1b_reference.json")
PYTHIA_SELECTIVITY = os.path.join(DATA, "published_pythia1b_selectivity.csv")
OLMO = os.path.join(DATA, "published_olmo1b.csv")
FINEWEB = os.path.join(DATA, "published_fineweb124m_induction.csv")

# Published beside the trajectories (olmo_phase1_features.json).
OLMO_INTEGRALS = {(2, 10): 19.623286502804085, (2, 11): 212.16114036984038, (4, 12): 213.01658593584403}


def integrals(found):
    return {(line["layer"], line["head"]): line["integral"] for line in found["heads"]}


class Published(unittest.TestCase):
    def close(self, mine, theirs):
        self.assertLessEqual(abs(mine - theirs), 1e-9 * abs(theirs))

    def test_features_of_pythia_as_it_was_published(self):
        with open(PYTHIA) as file:
            heads = json.load(file)["heads"]
        found = answer("rank", "--axis", "ln_tokens_clamped_1b", PYTHIA)
        self.assertEqual(len(found["heads"]), len(heads))
        for line in found["heads"]:
            want = heads[f"L{line['layer']}_H{line['head']}"]["features"]
            for mine, theirs in ("integral", "integral"), ("final", "final_pr"), ("max", "max_pr"), ("min", "min_pr"):
                self.close(line[mine], want[theirs])
        unclamped = integrals(answer("rank", PYTHIA))
        for name, head in heads.items():
            layer, number = map(int, name[1:].split("_H"))
            self.close(unclamped[layer, number], head["derived_integral_ln_tokens_trapz_unclamped"])

    def test_integrals_of_olmo_with_tokens_in_billions(self):
        found = integrals(answer("rank", "--axis", "ln_tokens_clamped_1b", OLMO))
        self.assertEqual(found.keys(), OLMO_INTEGRALS.keys())
        for head, want in OLMO_INTEGRALS.items():
            self.close(found[head], want)

    def test_reference_rules_give_the_published_circuits(self):
        pythia = answer("replay", "--rules", "reference", PYTHIA_SELECTIVITY)
        self.assertEqual(states(pythia, 4, 4), [("emerging", 512), ("formed", 3000)])  # 3.9x, 171.8x
        self.assertIn(("formed", 256), states(pythia, 3, 5, "previous_token"))
        olmo = answer("replay", "--rules", "reference", OLMO)
        self.assertEqual(olmo["final"][0]["heads"], [[2, 11], [4, 12]])
        self.assertEqual(olmo["events"][0]["tokens"], 2e9)

    def test_patterns_in_columns_come_in_the_standard_order(self):
        found = answer("replay", PYTHIA_SELECTIVITY)
        names = ["induction", "previous_token", "duplicate_token", "first_token", "self", "local"]
        self.assertEqual([circuit["pattern"] for circuit in found["final"]], names)


class Wide(Refusals):
    LONG = "layer,head,step,participation_ratio\n0,1,0,2\n0,1,200,4\n3,2,0,5\n3,2,200,\n"

    def test_a_column_for_each_checkpoint(self):
        want = answer("rank", "--axis", "step", "-", text=self.LONG)
        for text in [
            "layer,head,step0,step200\n0,1,2,4\n3,2,5,\n",
            "head,0,200\nL0_H1,2,4\n3.2,5,\n",
            "step,L0_H1,L3_H2\n0,2,5\n200,4,NA\n",
            json.dumps({"ckpt_step": [0, 200], "pr": {"L0_H1": [2, 4], "L3_H2": [5, None]}}),
        ]:
            self.assertEqual(answer("rank", "--axis", "step", "-", text=text), want)

    def test_revision_names_carry_tokens(self):
        text = "head,step1000-tokens2B,step2000-tokens4B\nL0_H0,3,3\n"
        self.assertAlmostEqual(integrals(answer("rank", "-", text=text))[0, 0], 2 * math.log(2))

    def test_a_column_name_without_end_is_no_checkpoint(self):
        done = run("rank", "--axis", "step", "-", text="head," + "7" * 400_000 + "\n0.1,5\n")
        self.assertEqual(done.returncode, 2, done.stderr[:200])

    def test_a_column_or_array_of_selectivities(self):
        want = [("emerging", 300), ("formed", 300)]
        text = "layer,head,step100,step200,step300\n1,2,1,60,60\n"
        self.assertEqual(states(answer("replay", "-", text=text), 1, 2), want)
        text = json.dumps({"step": [100, 200, 300], "induction": {"L1_H2": [1, 60, 60]}, "self": {"L1_H2": [1, 1, 1]}})
        found = answer("replay", "-", text=text)
        self.assertEqual(states(found, 1, 2), want)
        self.assertEqual([circuit["pattern"] for circuit in found["final"]], ["induction", "self"])

    def test_phases_of_published_json(self):
        steps, values, phases = [0, 200, 0, 200], [1, 60, 60, 60], ["a", "a", "b", "b"]
        text = json.dumps({"phase": phases, "step": steps, "induction": {"L1_H2": values}})
        found = answer("replay", "-", text=text)
        self.assertEqual(found["definition"]["stretches"], 2)
        self.assertEqual(states(found, 1, 2), [("emerging", 200), ("formed", 200)])

    def test_what_python_and_windows_write(self):
        table = {"step": [0, 200, 300], "pr": {"L0_H1": [2, math.nan, math.inf]}, "note": 'NaN \\" Infinity'}
        table["induction"] = {"L0_H1": [60, -math.inf, 60]}
        plain = json.dumps(table)
        self.assertIn("NaN,", plain)
        for text in plain, "\ufeff" + plain, "\r\n " + json.dumps(table, indent=1).replace("\n", "\r\n"):
            found = answer("rank", "--axis", "step", "-", text=text)
            self.assertEqual(found["definition"]["readings_skipped"], 2)
            self.assertEqual(found["heads"][0]["final"], 2)
            found = answer("replay", "-", text=text)
            self.assertEqual((found["definition"]["rows"], found["definition"]["readings_skipped"]), (3, 1))
            found = answer("screen", "--json", "-", text=text)
            self.assertEqual(found["screens"][0]["circuits"]["induction"], [[0, 1]])
        for command in ["rank", "--axis", "step"], ["replay", "--pattern", "self"], ["screen", "--json"]:
            long = "layer,head,step,pattern,pr,selectivity\n\n0,0,1,self,NaN,40\n0,0,2,self,3,40\n"
            want = answer(*command, "-", text=long)
            for text in "\ufeff" + long, long.replace("\n", "\r\n"), "\ufeff\r\n" + long:
                self.assertEqual(answer(*command, "-", text=text), want)
            self.refused(*command, "-", text=long.replace("\n", "\r"), says=["CR alone", "CRLF"])
            self.refused(*command, "-", text='[{"step": 1}]', says=["JSON array"])
            self.refused(*command, "-", text="\n\nlayer,head,step,pattern,pr,selectivity\n0,x,1,self,1,1\n", says=[":4:", "'x'"])
            with tempfile.NamedTemporaryFile() as file:
                for content, says in (long.encode("utf-16"), "UTF-16"), (gzip.compress(long.encode()), "compressed"):
                    file.seek(0)
                    file.write(content)
                    file.truncate()
                    file.flush()
                    self.refused(*command, file.name, says=[file.name, says])

    def test_trouble_names_the_place(self):
        self.refused("rank", "-", text="head,0,200\nL0_H0,2,4\n", says=["'tokens'", "'tokens_b'", "--axis step"])
        self.refused("rank", "--axis", "step", "-", text="head,0,200\nL0,2,4\n", says=["<stdin>:2", "'L0'", "L4_H4"])
        self.refused("rank", "--axis", "step", "-", text="head,0,200\n0.1,2,x\n", says=["<stdin>:2", "'200'", "'x'"])
        self.refused("rank", "-", text='{"pr": {}}', says=["list of steps"])
        self.refused("rank", "-", text='{"step": [1], "pr": {}}', says=["array of a head"])
        self.refused("rank", "-", text='{"step": [1], "pr": {"L0_H0": [1, 2]}}', says=["pr of L0_H0", "2 values for 1"])
        self.refused("rank", "-", text='{"step": [1], "pr": {"L0_H0": [[1]]}}', says=["pr of L0_H0", "[1]"])
        self.refused("rank", "-", text="{", says=["no JSON object"])
        self.refused("rank", PYTHIA_SELECTIVITY, says=["'participation_ratio'"])
        self.refused("replay", PYTHIA, says=["'selectivity'"])


class Phases(Refusals):
    HEADER = "phase,layer,head,step,tokens,participation_ratio\n"

    def test_a_phase_that_starts_again_is_integrated_on_its_own(self):
        text = self.HEADER
        text += "".join(f"a,0,0,{step},{tokens},3\n" for step, tokens in [(1, 1), (2, 1024)])
        text += "".join(f"b,0,0,{step},{tokens},21\n" for step, tokens in [(1, 1), (2, 100)])
        for other in text, text.replace("tokens,", "tokens_b,"):
            found = answer("rank", "-", text=other)
            self.assertAlmostEqual(integrals(found)[0, 0], 2 * math.log(1024) + 20 * math.log(100))
        stated = answer("rank", "-", text=text)["definition"]
        self.assertEqual((stated["phases"], stated["phases_joined"]), (["a", "b"], 2))
        back = {"after_phase": "a", "heads": 1, "first_head": [0, 0], "from_tokens": 1024, "to_tokens": 1}
        self.assertEqual(stated["axis_goes_back"], [back])
        found = answer("rank", "--axis", "step", "-", text=text)
        self.assertEqual(integrals(found)[0, 0], 2 + 20)
        self.assertEqual(found["definition"]["axis_goes_back"][0]["from_step"], 2)

    def test_a_phase_that_goes_on_is_joined(self):
        text = self.HEADER + "a,0,0,1,1,3\na,0,0,2,10,3\nb,0,0,1,100,3\nb,0,0,2,1000,3\n"
        found = answer("rank", "-", text=text)
        self.assertAlmostEqual(integrals(found)[0, 0], 2 * math.log(1000))
        self.assertEqual(found["definition"]["axis_goes_back"], [])

    def test_a_run_without_phases_states_none(self):
        found = answer("rank", "-", text="layer,head,step,tokens,participation_ratio\n0,0,1,10,2\n")
        self.assertNotIn("phases", found["definition"])

    def test_steps_that_go_back_without_a_phase_are_told(self):
        header = "layer,head,step,participation_ratio\n"
        for again in 0, 50, 199:  # at the first step, above it, just behind the last
            rows = [f"0,3,{step},{2 + i}\n" for i, step in enumerate([0, 100, 200, again, 250])]
            for repeats in 1, 2:  # a row for each pattern
                text = header + "0,2,7,2\n" + "".join(row * repeats for row in rows)
                stated = answer("rank", "--axis", "step", "-", text=text)["definition"]
                want = {"rows": 1, "heads": 1, "first_head": [0, 3], "from": "step 200", "to": f"step {again}"}
                self.assertEqual(stated["rows_go_back"], want)
                self.assertEqual(stated["x"], "step")
            self.assertIn("'phase'", stated["rows_note"])
        stated = answer("rank", "--axis", "step", "-", text=header + "".join(rows[:3]))["definition"]
        self.assertNotIn("rows_go_back", stated)

    def test_a_phase_that_returns_is_told(self):
        rows = ["a,0,0,1,1,3\n", "b,0,0,1,10,3\n", "a,0,0,2,100,3\n"]
        back = answer("rank", "-", text=self.HEADER + "".join(rows))["definition"]["rows_go_back"]
        self.assertEqual((back["from"], back["to"]), ("step 1 of phase 'b'", "step 2 of phase 'a'"))
        by_head = rows[:2] + [row.replace(",0,0,", ",0,1,") for row in rows[:2]]
        self.assertNotIn("rows_go_back", answer("rank", "-", text=self.HEADER + "".join(by_head))["definition"])

    def test_tokens_that_go_back_within_a_phase_are_refused(self):
        text = "layer,head,step,tokens,participation_ratio\n0,3,1,10,2\n0,3,2,1000,2\n0,3,3,20,2\n"
        says = ["head 0.3", "from 1000 at step 2 to 20 at step 3", "'phase'", "--axis step"]
        self.refused("rank", "-", text=text, says=says)
        self.assertEqual(integrals(answer("rank", "--axis", "step", "-", text=text))[0, 3], 2)


if __name__ == "__main__":
    main()
