"""A plugin of pytest for the tests of images: a line for each test, with its number, name and seconds.

They take minutes, and dots don't say which test is under way.
"""

import time
from collections.abc import Callable
from typing import Any


class TestLines:
    """Writes the beginning of a line when a test begins, and its end when the test has ended."""

    __test__ = False

    def __init__(self, write: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._write, self._now = write, now
        self._total = self._number = 0
        self._began = self._test_began = now()
        self._outcome = ""

    def pytest_collection_finish(self, session: Any) -> None:
        self._total = len(session.items)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._number += 1
        self._test_began, self._outcome = self._now(), ""
        so_far = self._test_began - self._began
        self._write(f"test {self._number} of {self._total}, {so_far:.0f} s so far: {nodeid.rpartition('/')[2]} … ")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self._outcome = f"{report.outcome}, "

    def pytest_runtest_logfinish(self) -> None:
        self._write(f"{self._outcome}{self._now() - self._test_began:.1f} s\n")

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """The same categories as pytest's own, for the summary, without a letter."""
        if report.when == "call" or report.skipped:
            return report.outcome, "", ""
        return "error" if report.failed else "", "", ""


def pytest_sessionstart(session: Any) -> None:
    """Not at `pytest_configure`, which comes here before pytest's reporter is there."""
    plugins = session.config.pluginmanager
    if (reporter := plugins.get_plugin("terminalreporter")) is not None:
        plugins.register(TestLines(lambda text: reporter.write(text, flush=True)))
