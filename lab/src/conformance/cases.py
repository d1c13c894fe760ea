"""Runs rdma-core's own test-suite and writes the fate of every case on a line of its own.

Usage: cases.py DIRECTORY DEVICE REPORT [CASE...]

DIRECTORY has the suite in `tests`. A line is a word, the case and, after a tab, what there is to say.
"""

import faulthandler
import multiprocessing
import os
import random
import sys
import unittest

# Longer than any case takes on a machine that is busy with other things.
CASE_TIMEOUT = 120

# For the cards of one maker; all other devices skip them.
VENDORS = ("tests.test_mlx5", "tests.test_efa")


class Report(unittest.TestResult):
    """Unbuffered, so that the last line names the case if the process dies in one."""

    def __init__(self, path):
        super().__init__()
        self.file = open(path, "w", buffering=1)

    def say(self, word, test, remark=""):
        self.file.write(f"{word} {test.id()}\t{' '.join(remark.split())}\n")

    def startTest(self, test):
        super().startTest(test)
        # The suite chooses sizes and GIDs at random: a case alone must choose as it did among all.
        random.seed(test.id())
        faulthandler.dump_traceback_later(CASE_TIMEOUT, exit=True)
        self.say("starts", test)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)

    def addSuccess(self, test):
        self.say("passed", test)

    def addSkip(self, test, reason):
        self.say("skipped", test, reason)

    def addFailure(self, test, error):
        self.fail(test, error)

    def addError(self, test, error):
        self.fail(test, error)

    def addSubTest(self, test, subtest, error):
        if error:
            self.fail(test, error)

    def fail(self, test, error):
        print(f"--- {test.id()}\n{self._exc_info_to_string(error, test)}", file=sys.stderr)
        self.say("failed", test, str(error[1]))


def cases(suite):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from cases(part)
        else:
            yield part


def main(directory, device, report, *wanted):
    # The suite reads its own command line, and imports its own modules in two ways.
    sys.argv[1:] = ["--dev", device]
    sys.path[:0] = [directory, os.path.join(directory, "tests")]
    from args_parser import parser

    parser.parse_args()
    import tests

    # Other ways of starting processes, which Python prefers since 3.14, pickle a test case. The suite's own runner can't be
    # pickled, nor can the report.
    multiprocessing.set_start_method("fork")
    result = Report(report)
    chosen = unittest.TestSuite()
    for case in cases(unittest.defaultTestLoader.loadTestsFromModule(tests)):
        if case.id().startswith(VENDORS):
            result.say("vendor", case)
        elif not wanted or any(part in case.id() for part in wanted):
            chosen.addTest(case)
    chosen.run(result)


main(*sys.argv[1:])
