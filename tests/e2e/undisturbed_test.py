"""The demo's losses are the same bits with the monitor on, idle and absent."""

import unittest

from demo import Demo


class Undisturbed(unittest.TestCase):
    def test_losses_are_the_same_bits(self):
        hashes = {}
        for mode in ("off", "idle", "on"):
            run = Demo("--monitor", mode, "--steps", 40, "--quiet")
            try:
                self.assertEqual(run.wait(), 0, run.output())
                summary = run.summary()
                hashes[mode] = summary["loss_hash"]
                if mode == "on":
                    self.assertGreater(summary["health"]["probes"], 5)
                    self.assertEqual(summary["layers_seen"], 2)
                else:
                    self.assertEqual(summary["health"]["taps"], 0)
            finally:
                run.close()
        self.assertEqual(len(set(hashes.values())), 1, hashes)


if __name__ == "__main__":
    unittest.main(verbosity=2)
