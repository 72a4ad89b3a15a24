"""The Python twin of needs.h."""
import os
import unittest


def need(have, reason):
    """Skips with a reason what needs a tool that this machine lacks; where CI is set, the test fails instead."""
    if not have:
        if os.environ.get("CI"):
            raise AssertionError(reason)
        raise unittest.SkipTest(reason)
