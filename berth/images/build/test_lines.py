"""A pytest plugin for the image tests: a line per test with its number, name and duration.

The tests take minutes, and dots don't show which one is running.
"""

import time
from collections.abc import Callable
from typing import Any


class TestLines:
    """Writes the start of a line when a test starts, and the rest when it ends."""

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
        """Pytest's own categories for the summary, without the letter that it prints per test."""
        if report.when == "call" or report.skipped:
            return report.outcome, "", ""
        return "error" if report.failed else "", "", ""


def pytest_sessionstart(session: Any) -> None:
    """Registers the plugin. `pytest_configure` is too early: pytest's reporter does not exist yet."""
    plugins = session.config.pluginmanager
    if (reporter := plugins.get_plugin("terminalreporter")) is not None:
        plugins.register(TestLines(lambda text: reporter.write(text, flush=True)))
