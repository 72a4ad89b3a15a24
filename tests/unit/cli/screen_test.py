"""`headscope screen` from outside: published figures, formats, messages. Usage: screen_test.py BINARY DATA"""

import os
import unittest

from command import DATA, Refusals, answer, main, run

PUBLISHED = os.path.join(DATA, "published_pythia1b_screen.csv")
REVISIONS = os.path.join(DATA, "published_pythia1b_selectivity.csv")


def one(*arguments, text=""):
    found = answer("screen", "--json", *arguments, text=text)
    assert len(found["screens"]) == 1
    return found["definition"], found["screens"][0]


class Published(unittest.TestCase):
    """All 128 heads of Pythia-1B, by the paper's rules."""

    def screen(self, *arguments):
        return one("--rules", "reference", *arguments, PUBLISHED)[1]

    def test_breakdown_and_precision_of_the_first_45(self):
        top = self.screen("--top", "45")["top"]
        self.assertEqual(top["k"], 45)
        self.assertEqual(
            top["classes"],
            {"induction": 2, "previous-token": 13, "duplicate-token": 1, "first-token": 17, "self": 3, "local": 0,
             "unclassified": 9})
        self.assertEqual([(at["k"], at["specialised"]) for at in top["precision"]],
                         [(5, 4), (10, 8), (15, 12), (20, 15), (30, 23), (45, 36)])

    def test_circuits(self):
        circuits = self.screen()["circuits"]
        self.assertEqual(circuits["induction"], [[4, 4], [7, 0], [7, 1]])
        self.assertEqual(circuits["previous-token"], [[1, 3], [2, 1], [2, 3], [2, 5], [3, 2], [3, 5], [3, 6], [6, 3]])

    def test_sinks_by_layer(self):
        sinks = self.screen()["sinks"]
        self.assertEqual((sinks["any"], sinks["by_class"], sinks["by_mass"]), (74 / 128, 69 / 128, None))
        self.assertEqual([layer["any"] for layer in sinks["layers"]], [0, 0, 0, 0, 8, 7, 7, 6, 7, 7, 7, 7, 5, 4, 4, 5])

    def test_heads_above_the_calibrated_thresholds(self):
        self.assertEqual(self.screen()["heads_above"]["induction"], {"2": 32, "10": 11, "30": 6, "50": 3, "100": 3})

    def test_fractions_and_default_k(self):
        found = self.screen()
        self.assertEqual(found["top"]["k"], 23)
        self.assertEqual((found["specialised_top"], found["specialised"]), (17 / 128, 94 / 128))

    def test_classes_and_ranks_of_heads(self):
        heads = {(head["layer"], head["head"]): head for head in self.screen()["heads"]}
        self.assertEqual(heads[7, 1]["class"], "first-token")  # in the induction circuit all the same
        self.assertEqual((heads[4, 4]["class"], heads[4, 4]["rank"]), ("induction", 27))
        self.assertEqual((heads[8, 1]["pr_integral"], heads[8, 1]["rank"]), (9.698725, 128))

    def test_a_step_of_a_trajectory(self):
        definition, found = one("--rules", "reference", REVISIONS)
        self.assertEqual((definition["step"], definition["rows"], definition["readings_superseded"]), (143000, 36, 0))
        self.assertEqual(found["circuits"]["induction"], [[4, 4], [7, 1]])
        self.assertIsNone(found["top"])
        definition, found = one("--step", "3000", "--rules", "reference", REVISIONS)
        self.assertEqual(found["circuits"]["induction"], [[4, 4], [5, 7], [7, 1]])

    def test_text(self):
        text = run("screen", "--rules", "reference", "--top", "45", PUBLISHED).stdout.decode()
        for line in (
            "128 heads, T = 256, rules of reference",
            "class              all heads  first 45  circuit (selectivity at least)",
            "induction                  2         2  3 (50): 4.4 7.0 7.1",
            "previous-token            14        13  8 (100, of this class): 1.3 2.1 2.3 2.5 3.2 3.5 3.6 6.3",
            "unclassified              34         9",
            "specialised        73.4 % of all heads have a class; 28.1 % have one and are among the first 45",
            "precision at k     5: 0.80  10: 0.80  15: 0.80  20: 0.75  30: 0.77  45: 0.80",
            "sinks              any 57.8 %, by class 53.9 %, by mass not known",
        ):
            self.assertIn(line + "\n", text)
        self.assertLess(len(text.splitlines()), 24)


class Recorded(unittest.TestCase):
    """What `headscope history` prints, and more columns."""

    HEAD = "step,source,context,layer,head,pattern,selectivity,mass,pr_integral\n"

    def test_the_last_step_with_mass_and_context(self):
        text = self.HEAD + (
            "1,probe,64,0,0,induction,90,.9,1\n"
            "2,probe,64,0,0,induction,13,.09,5\n"
            "2,probe,64,0,1,induction,13,.11,4\n"
            "2,train,64,0,1,induction,1,.5,\n"
            "2,probe,64,1,0,induction,nan,,\n"
        )
        definition, found = one("-", text=text)
        self.assertEqual((definition["step"], definition["context"]), (2, 64))
        self.assertEqual(definition["readings_skipped"], 1)
        self.assertAlmostEqual(definition["formed_selectivity"]["induction"]["at_context"], 50 * 63 / 255)
        self.assertEqual(found["circuits"]["induction"], [[0, 1]])  # 0.0 has too little mass
        self.assertEqual(found["classes"], {"induction": 2, "unclassified": 1})
        self.assertEqual(found["top"]["k"], 1)
        self.assertIsNone(found["heads"][2]["rank"])  # no pr_integral
        self.assertIsNone(found["sinks"])

    def test_context_and_rules_change_the_thresholds(self):
        text = self.HEAD + "2,probe,64,0,0,induction,13,.9,5\n"
        self.assertEqual(one("--context", "256", "-", text=text)[1]["circuits"]["induction"], [])
        self.assertEqual(one("--rules", "reference", "-", text=text)[0]["formed_selectivity"]["induction"]["at_context"], 50)

    def test_the_last_phase(self):
        text = "phase,step,layer,head,induction\na,9,0,0,90\nb,1,0,0,1\nb,2,0,0,60\n"
        definition, found = one("-", text=text)
        self.assertEqual((definition["phase"], definition["step"]), ("b", 2))
        self.assertEqual(found["circuits"]["induction"], [[0, 0]])

    def test_a_phase_that_is_asked_for(self):
        text = "phase,step,layer,head,induction\na,9,0,0,90\nb,1,0,0,1\n"
        definition, found = one("--phase", "a", "-", text=text)
        self.assertEqual((definition["phase"], definition["step"]), ("a", 9))
        self.assertEqual(found["circuits"]["induction"], [[0, 0]])

    def test_a_window_is_the_context_that_its_query_sees(self):
        text = "layer,head,induction\n0,0,30\n"
        for option in "--window", "--context":
            self.assertEqual(one(option, "128", "-", text=text)[1]["circuits"]["induction"], [[0, 0]])

    def test_the_table_says_what_it_leaves_out(self):
        text = "source,phase,step,layer,head,induction\n"
        text += "probe,a,9,0,0,90\nprobe,b,1,0,0,1\nprobe,b,1,0,1,1\nprobe,b,2,0,0,1\nprobe,b,2,0,0,60\n"
        text += "probe,b,2,0,1,nan\ntrain,b,2,0,1,5\n"
        shown = run("screen", "-", text=text).stdout.decode()
        self.assertIn("\nleft out           1 selectivities that are empty or not finite, 1 that a later row supersedes, "
                      "2 of other steps, 1 of other phases, 1 rows of other sources\n", shown)
        definition, _ = one("-", text=text)
        self.assertEqual([definition[f"readings_of_other_{what}"] for what in ("steps", "phases")], [2, 1])
        many = "layer,head,induction\n" + "".join(f"0,{head},60\n" for head in range(13))
        shown = run("screen", "-", text=many).stdout.decode()
        self.assertIn(" 0.9 and 3 more\n", shown)
        self.assertNotIn("left out", shown)

    def test_batches_give_the_stability_of_classes(self):
        text = "batch,layer,head,induction,self\nq127,0,0,40,1\nq127,0,1,40,1\nq255,0,1,1,40\nq255,0,0,40,1\n"
        found = answer("screen", "--json", "-", text=text)
        self.assertEqual([screen["batch"] for screen in found["screens"]], ["q127", "q255"])
        self.assertEqual(found["stability"], {"batches": 2, "unanimous": 0.5, "pairwise": 0.5})
        shown = run("screen", "-", text=text).stdout
        self.assertIn(b"50.0 % of heads have one class in all 2 batches", shown)

    def test_sinks_by_mass(self):
        text = "layer,head,first-token,sink_mass\n0,0,1,.31\n0,1,1,.1\n"
        self.assertEqual(one("-", text=text)[1]["sinks"]["by_mass"], 0.5)

    def test_a_doubled_row_counts_once(self):
        text = "layer,head,pattern,selectivity\n0,0,induction,90\n0,0,induction,1\n0,0,mine,40\n"
        definition, found = one("-", text=text)
        self.assertEqual(definition["readings_superseded"], 1)
        self.assertEqual(found["circuits"], {"induction": [], "mine": [[0, 0]]})


class Refused(Refusals):
    def test_bad_values_and_columns(self):
        self.refused("screen", "-", text="layer,head,selectivity\n", says=["'pattern'"])
        self.refused("screen", "-", text="layer,head,pr\n", says=["'selectivity'", "layer, head, pr"])
        self.refused("screen", "-", text="layer,head,induction\n0,0,many\n", says=["<stdin>:2", "'induction'", "'many'"])
        self.refused("screen", "-", text="layer,head,pattern,selectivity\n0,0,In Duction,1\n", says=["'In Duction'"])
        self.refused("screen", "-", text="layer,head,induction\n", says=["no row to screen"])
        self.refused("screen", "-", text="layer,head,pattern,selectivity\n0,0,,\n", says=["no row with a pattern"])

    def test_steps_and_contexts(self):
        self.refused("screen", "--step", "7", REVISIONS, says=["no row of step 7", "the last is 143000"])
        self.refused("screen", "--step", "7", PUBLISHED, says=["no column 'step'"])
        text = "phase,layer,head,induction\na,0,0,1\n"
        self.refused("screen", "--phase", "b", "-", text=text, says=["no row of phase 'b'", "'a'"])
        text = "layer,head,context,induction\n0,0,64,1\n0,1,65,1\n"
        self.refused("screen", "-", text=text, says=["'65'", "--context"])
        self.refused("screen", "--context", "1", PUBLISHED, says=["context"])

    def test_more_heads_than_are_ranked(self):
        self.refused("screen", "--top", "129", PUBLISHED, says=["first 129 heads", "128 have one"])

    def test_batches_of_other_heads(self):
        text = "batch,layer,head,induction\na,0,0,1\nb,0,1,1\n"
        self.refused("screen", "-", text=text, says=["batch 'b' has other heads than batch 'a'"])


if __name__ == "__main__":
    main()
