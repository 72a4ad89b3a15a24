"""The `headscope` command from outside: formats, figures, messages, exit codes. Usage: cli_test.py BINARY DATA"""

import csv
import json
import os
import subprocess
import tempfile
import unittest

from command import BINARY, DATA, Refusals, answer, main, run, states

PUBLISHED = os.path.join(DATA, "published_fineweb124m_induction.csv")


class Rank(unittest.TestCase):
    def golden(self, order=1):
        with open(os.path.join(DATA, "pythia1b_reference.json")) as file:
            reference = json.load(file)
        lines = ["layer,head,step,tokens,participation_ratio"]
        for name, head in reference["heads"].items():
            layer, number = name[1:].split("_H")
            for step, billions, ratio in zip(
                reference["trajectory_steps"], reference["trajectory_tokens_B"], head["pr"]
            ):
                lines.append(f"{layer},{number},{step},{billions * 1e9!r},{ratio!r}")
        return reference["heads"], "\n".join([lines[0]] + lines[1:][::order]) + "\n"

    def test_golden_integrals_and_features(self):
        for order in 1, -1:  # the order of the rows does not count
            heads, text = self.golden(order)
            found = answer("rank", "--axis", "ln_tokens_clamped_1b", "-", text=text)
            self.assertEqual(len(found["heads"]), 7)
            for line in found["heads"]:
                want = heads[f"L{line['layer']}_H{line['head']}"]["features"]
                for mine, theirs in [
                    ("integral", "integral"),
                    ("final", "final_pr"),
                    ("max", "max_pr"),
                    ("min", "min_pr"),
                    ("spread", "spread"),
                ]:
                    self.assertLessEqual(abs(line[mine] - want[theirs]), 1e-9 * abs(want[theirs]))
            ranks = [line["rank"] for line in found["heads"]]
            integrals = [line["integral"] for line in found["heads"]]
            self.assertEqual(ranks, list(range(1, 8)))
            self.assertEqual(integrals, sorted(integrals, reverse=True))
            self.assertEqual(found["definition"]["axis"], "ln_tokens_clamped_1b")

    def test_top(self):
        _, text = self.golden()
        self.assertEqual(len(answer("rank", "--top", "2", "-", text=text)["heads"]), 2)

    def test_skips_and_counts_what_is_no_reading(self):
        text = "layer,head,step,tokens,participation_ratio\n0,0,1,10,2\n0,0,2,20,\n0,0,3,30,inf\n0,0,4,,3\n"
        found = answer("rank", "-", text=text)
        self.assertEqual(found["definition"]["readings_skipped"], 2)
        self.assertEqual(found["definition"]["readings_off_axis"], 1)
        self.assertEqual(found["heads"][0]["final"], 3)

    def test_says_when_nothing_has_a_place_on_the_axis(self):
        header = "layer,head,step,tokens,participation_ratio\n"
        stated = answer("rank", "-", text=header + "0,0,1,,2\n0,0,2,,3\n0,0,3,,\n")["definition"]
        self.assertIn("use --axis step", stated["note"])
        self.assertNotIn("note", answer("rank", "-", text=header + "0,0,1,,2\n0,0,2,5,3\n")["definition"])

    def test_a_later_row_supersedes(self):
        text = "layer,head,step,tokens,participation_ratio\n0,0,1,10,2\n0,0,2,20,9\n0,0,2,20,4\n0,0,2,20,4\n"
        found = answer("rank", "--axis", "step", "-", text=text)
        self.assertEqual(found["heads"][0]["integral"], 2)
        self.assertEqual(found["definition"]["readings_superseded"], 1)

    def test_says_when_tokens_look_like_billions(self):
        text = "layer,head,step,tokens,participation_ratio\n0,0,1,0.5,2\n0,0,2,299,9\n"
        found = answer("rank", "--axis", "ln_tokens_clamped_1b", "-", text=text)
        self.assertIn("tokens are a count, not billions", found["definition"]["note"])

    def test_step_axis_needs_no_tokens(self):
        text = "layer,head,step,participation_ratio\n0,0,0,2\n0,0,2,2\n"
        self.assertEqual(answer("rank", "--axis", "step", "-", text=text)["heads"][0]["integral"], 2)


class Replay(unittest.TestCase):
    def test_published_head_forms_once_and_is_never_lost(self):
        kinds = [state for state, _ in states(answer("replay", PUBLISHED), 8, 6)]
        self.assertEqual(kinds.count("formed"), 1)
        self.assertEqual(kinds.count("lost"), 0)

    def test_published_head_in_the_documented_columns(self):
        with open(PUBLISHED) as file:
            rows = list(csv.DictReader(file))
        for phases in [("fineweb",), ("fineweb", "owt")]:
            for heads in [("6",), ("6", "8")]:
                lines = ["step,tokens,layer,head,pattern,selectivity"]
                lines += [
                    f"{row['step']},,{row['layer']},{row['head']},induction,{row['selectivity']}"
                    for row in rows
                    if row["phase"] in phases and row["head"] in heads
                ]
                found = answer("replay", "--context", "256", "-", text="\n".join(lines))
                self.assertEqual(states(found, 8, 6), [("emerging", 1000), ("formed", 1200)])
                self.assertEqual(found["definition"]["stretches"], len(phases))

    def test_reference_rules_follow_every_crossing(self):
        kinds = [state for state, _ in states(answer("replay", "--rules", "reference", PUBLISHED), 8, 6)]
        self.assertGreater(kinds.count("formed"), 10)

    def test_reference_rules_ask_previous_token_for_the_best_class(self):
        header = "step,layer,head,previous_token,first_token\n"
        for other, formed in (300, False), (120, True), (121, False), (30, True):
            text = header + f"1,0,0,120,{other}\n2,0,0,120,{other}\n"
            found = answer("replay", "--rules", "reference", "-", text=text)
            kinds = [state for state, _ in states(found, 0, 0, "previous_token")]
            self.assertEqual("formed" in kinds, formed, other)
            self.assertTrue(found["definition"]["previous_token_by_class"])
            kinds = [state for state, _ in states(answer("replay", "-", text=text), 0, 0, "previous_token")]
            self.assertIn("formed", kinds)
        text = header + "1,0,0,120,1\n2,0,0,120,130\n"  # it leaves with its class
        found = states(answer("replay", "--rules", "reference", "-", text=text), 0, 0, "previous_token")
        self.assertEqual(found[-2:], [("formed", 1), ("lost", 2)])

    def test_interleaved_shuffled_and_dressed_up(self):
        plain = "step,tokens,layer,head,pattern,selectivity\n"
        dressed = "\ufeff# made by hand\r\n\r\nselectivity , PATTERN,head,layer,tokens,step\r\n"
        steps = [(0, 1, 1), (100, 1, 60), (200, 60, 60), (300, 60, 60)]
        for step, induction, own in steps:
            plain += f"{step},{step * 10},1,2,induction,{induction}\n{step},{step * 10},0,3,self,{own}\n"
            dressed += f'"{own}","self",3 ,0, {step * 10}.0,{step}.0\r\n# note\r\n'
            dressed += f"{induction},induction,2,1,{step * 10},{step}\r\n\r\n"
        one, other = answer("replay", "-", text=plain), answer("replay", "-", text=dressed)
        self.assertEqual(one, other)
        self.assertEqual(states(one, 1, 2), [("emerging", 300), ("formed", 300)])
        self.assertEqual(states(one, 0, 3, "self"), [("emerging", 200), ("formed", 200)])
        self.assertEqual(one["events"][0]["tokens"], 2000)

    def test_heads_one_after_the_other_are_one_stretch(self):
        text = "step,layer,head,pattern,selectivity\n"
        for head in 0, 1:
            for step, value in [(1, 1), (2, 60), (3, 60)]:
                text += f"{step},0,{head},induction,{value}\n"
        found = answer("replay", "-", text=text)
        self.assertEqual(found["definition"]["stretches"], 1)
        self.assertEqual(found["circuits"][-1]["heads"], [[0, 0], [0, 1]])

    def test_context_scales_thresholds(self):
        text = "step,layer,head,selectivity\n1,0,0,13\n2,0,0,13\n"
        self.assertEqual(len(states(answer("replay", "-", text=text), 0, 0)), 1)
        self.assertEqual(len(states(answer("replay", "--context", "64", "-", text=text), 0, 0)), 2)

    def test_mass_column_is_a_floor(self):
        text = "step,layer,head,selectivity,mass\n1,0,0,60,.05\n2,0,0,60,.05\n3,0,0,60,.2\n4,0,0,60,.2\n"
        self.assertEqual(states(answer("replay", "-", text=text), 0, 0), [("emerging", 2), ("formed", 4)])

    def test_gaps_hold_and_are_counted(self):
        text = "step,layer,head,selectivity\n1,0,0,60\n2,0,0,\n3,0,0,inf\n4,0,0,60\n"
        found = answer("replay", "-", text=text)
        self.assertEqual(states(found, 0, 0), [("emerging", 4), ("formed", 4)])
        self.assertEqual(found["definition"]["readings_skipped"], 2)

    def test_a_doubled_row_counts_once(self):
        text = "step,layer,head,selectivity\n1,0,0,60\n1,0,0,3\n1,0,0,60\n2,0,0,3\n"
        found = answer("replay", "-", text=text)
        self.assertEqual(states(found, 0, 0), [("emerging", 2)])
        self.assertEqual(found["definition"]["stretches"], 1)
        self.assertEqual(found["definition"]["readings_superseded"], 2)

    def test_unknown_patterns_form_at_thirty(self):
        text = "step,layer,head,pattern,selectivity\n1,0,0,mine,30\n2,0,0,mine,30\n1,0,0,previous_token,40\n"
        found = answer("replay", "-", text=text)
        self.assertEqual(states(found, 0, 0, "mine")[-1], ("formed", 2))
        self.assertEqual(found["definition"]["formed_selectivity"]["previous_token"]["at_256"], 100)

    def test_conversion_is_a_loss_that_names_the_other_pattern(self):
        text = "step,layer,head,pattern,selectivity\n"
        for step, induction, own in [(1, 60, 1), (2, 60, 1), (3, 1, 40), (4, 1, 40)]:
            text += f"{step},0,0,induction,{induction}\n{step},0,0,self,{own}\n"
        lost = [e for e in answer("replay", "-", text=text)["events"] if e["kind"] == "converted"]
        self.assertEqual([(e["pattern"], e["state"], e["step"]) for e in lost], [("induction", "lost", 4)])
        self.assertIn("self", lost[0]["rule"])


class Trouble(Refusals):
    def test_a_bad_value_names_file_line_column_and_value(self):
        header = "step,layer,head,selectivity\n1,0,0,60\n"
        self.refused("replay", "-", text=header + "2,0,0,fast\n", says=["<stdin>:3", "'selectivity'", "'fast'"])
        self.refused("replay", "-", text=header + "2.5,0,0,1\n", says=["<stdin>:3", "'step'", "'2.5'"])
        self.refused("replay", "-", text=header + "2,-1,0,1\n", says=["<stdin>:3", "'layer'", "'-1'"])
        self.refused("replay", "-", text=header + "2,0,1\n", says=["<stdin>:3", "3 fields for 4 columns"])
        self.refused("replay", "-", text=header + '2,0,0,"1\n', says=["<stdin>:3", "not closed"])
        self.refused("replay", "-", text=header + '2,0,0,"1"x\n', says=["<stdin>:3", "after the quoted"])

    def test_the_file_is_named(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("layer,head,step,tokens,participation_ratio\n0,0,1,-5,2\n")
            file.flush()
            self.refused("rank", file.name, says=[file.name + ":2", "'tokens'", "'-5'"])

    def test_columns_that_are_missing_or_doubled(self):
        self.refused("rank", "-", text="layer,head,step,x\n", says=["'participation_ratio'", "layer, head, step, x"])
        self.refused("rank", "-", text="layer,layer\n", says=["'layer' is named twice"])
        self.refused("rank", "-", text="", says=["empty"])
        self.refused("replay", "-", text="step,layer,head,selectivity\n", says=["no row"])

    def test_patterns_phases_and_contexts_that_make_no_sense(self):
        head = "step,layer,head,selectivity,"
        self.refused("replay", "-", text=head + "pattern\n1,0,0,1,In Duction\n", says=["'In Duction'"])
        self.refused("replay", "-", text=head + "phase\n1,0,0,1,a\n1,0,0,1,b\n2,0,0,1,a\n", says=["<stdin>:4", "phase"])
        self.refused("replay", "-", text=head + "context\n1,0,0,1,64\n2,0,0,1,65\n", says=["'65'", "--context"])

    def test_files_that_cannot_be_read(self):
        self.refused("rank", "/nowhere.csv", says=["/nowhere.csv", "No such file"])
        self.refused("rank", "/", says=["is a directory"])
        self.refused("history", "/nowhere", says=["/nowhere"])

    def test_a_table_without_rows(self):
        self.refused("rank", "-", text="layer,head,step,tokens,pr\n", says=["no row to rank"])

    def test_usage(self):
        self.refused(says=["subcommand"])
        self.refused("rank", says=["file is required"])
        self.refused("rank", "--axis", "tokens", PUBLISHED, says=["axis"])
        self.refused("replay", "--context", "1", PUBLISHED, says=["context"])
        self.refused("rank", "--floor-tokens", "0", "-", text="layer,head,step,tokens,participation_ratio\n", says=["floor_tokens"])

    def test_help_and_version(self):
        self.assertIn(b"headscope 0.", run("--version").stdout)
        for command in "rank", "replay", "history", "draws", "compare":
            self.assertIn(b"Example:", run(command, "--help").stdout)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_a_full_disk_is_an_error(self):
        for arguments in ["replay", PUBLISHED], ["--help"]:
            with open("/dev/full", "wb") as full:
                done = subprocess.run([BINARY, *arguments], stdout=full, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"writing the output failed: No space", done.stderr)

    def test_a_closed_pipe_is_an_error(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([BINARY, "replay", PUBLISHED], stdout=writer, stderr=subprocess.PIPE, timeout=60)
        os.close(writer)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"Broken pipe", done.stderr)

    def test_needs_no_torch(self):
        linked = subprocess.run(["ldd", BINARY], capture_output=True, timeout=60).stdout
        self.assertNotIn(b"torch", linked)
        self.assertNotIn(b"libheadscope", linked)


if __name__ == "__main__":
    main()
