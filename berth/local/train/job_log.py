"""A job's log files in its output folder: train.log, and a failure file per failed host."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from berth.common.files import explain_os_errors
from berth.contract.host_names import by_number
from berth.contract.words import few
from berth.local.signals import Interrupts

NAME = "train.log"
_FAILURE = "failure-"
_FAILED = "berth: failed: "


def is_reason(line: str) -> bool:
    """Whether a line is a host's reason of a failure, which the command prints at its end."""
    return line.partition(" | ")[2].startswith(_FAILED)


class JobLog:
    """As a context manager, writes every line of every host to train.log, and passes it on to `sink`.

    An earlier job's log becomes earlier-train.log, and its failure files are removed. After a signal the hosts' lines
    `berth: failed: …` are only written to the file, because the command itself reports once that the job was stopped.
    """

    def __init__(self, output: Path, sink: Callable[[str], None], interrupts: Interrupts) -> None:
        self.path = output / NAME
        self._sink = sink
        self._interrupts = interrupts
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        with explain_os_errors(self.path.parent, NAME):
            if self.path.exists():
                self.path.replace(self.path.with_name(f"earlier-{NAME}"))
            for earlier in self.path.parent.glob(f"{_FAILURE}algo-*"):
                earlier.unlink()
            self._file = self.path.open("w", buffering=1, encoding="utf-8", errors="replace")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def sink_of(self, host: str) -> Callable[[str], None]:
        """A sink for one host's lines, which are prefixed with its name, like those of the SDK's local mode."""

        def take(line: str) -> None:
            if self._file is not None:
                with contextlib.suppress(OSError):  # a full disk: the line still goes to the terminal
                    self._file.write(f"{host} | {line}\n")
            if not (self._interrupts.signum is not None and line.startswith(_FAILED)):
                self._sink(f"{host} | {line}")

        return take

    def keep_failures(self, failures: Mapping[str, str]) -> str:
        """Writes each host's reason to a file next to the log; returns the files' names, for a sentence."""
        written = []
        with explain_os_errors(self.path.parent, "a host's failure file"):
            for host in sorted(failures, key=by_number):
                path = self.path.with_name(f"{_FAILURE}{host}")
                path.write_text(failures[host] + "\n", encoding="utf-8", errors="replace")
                written.append(path.name)
        return few(written)
