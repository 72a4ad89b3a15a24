"""Runs the `headscope` command for the tests beside this file. Usage of each: TEST.py BINARY DATA"""

import json
import subprocess
import sys
import unittest

BINARY, DATA = sys.argv[1:3]


def run(*arguments, text=""):
    return subprocess.run([BINARY, *arguments], input=text.encode(), capture_output=True, timeout=60)


def answer(*arguments, text=""):
    done = run(*arguments, text=text)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def states(found, layer, head, pattern="induction"):
    return [
        (event["state"], event["step"])
        for event in found["events"]
        if (event["layer"], event["head"], event["pattern"]) == (layer, head, pattern)
    ]


class Refusals(unittest.TestCase):
    def refused(self, *arguments, text="", says=()):
        done = run(*arguments, text=text)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, b"")
        for part in says:
            self.assertIn(part, done.stderr.decode())


def main():
    unittest.main(argv=sys.argv[:1], verbosity=2)
