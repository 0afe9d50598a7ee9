"""How run_qa writes: lines in the log, and JSON for people.

Tuning jobs and notebooks read metrics out of the log by regular expressions (METRIC_PATTERNS). `metric` writes the
lines that they are meant to find, as `name = number`. No other line may match one of them, and mpirun mixes the lines
of several ranks, so everything goes out by `say`: a whole line in one write.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from berth.contract.masking import mask_text
from berth.runtime import whole_files
from berth.runtime.failure_file import SENTENCE_CHARACTERS, write_failure
from berth.runtime.log import ERROR_PREFIX

METRIC_PATTERNS = (
    r"train_runtime.*=\D*(.*?)$",
    r"train_samples_per_second.*=\D*(.*?)$",
    r"epoch.*=\D*(.*?)$",
    r"f1.*=\D*(.*?)$",
    r"exact_match.*=\D*(.*?)$",
)


def plain(text: str) -> str:
    """One line without secrets that no metric pattern matches: an equals sign that would make one match becomes a
    colon.
    """
    line = mask_text(" ".join(text.split("\n")).rstrip())
    return line.replace("=", ":") if any(re.search(pattern, line) for pattern in METRIC_PATTERNS) else line


def say(text: str, stream: TextIO | None = None) -> None:
    """Write one line for people, by one write: ranks and hosts share the log."""
    _write(plain(text), stream or sys.stdout)


def error(sentence: str) -> None:
    """Write the sentence of a user's mistake, as the last line of standard error."""
    sys.stdout.flush()
    _write(ERROR_PREFIX + plain(sentence), sys.stderr)


def failure(sentence: str) -> None:
    """Leave why the job ends: to the entry, which says it in the log of every host, or where there is none as `error`.

    What the entry says is cut at a length: of a longer sentence all is said here.
    """
    if not write_failure(sentence) or len(sentence) > SENTENCE_CHARACTERS:
        error(sentence)


def metric(name: str, value: float) -> None:
    """Write one metric as `name = number`, for the regular expressions of notebooks and tuning jobs."""
    _write(f"{name} = {number(value)}", sys.stdout)


def number(value: float) -> str:
    """A plain decimal number: no exponent, four decimals at most, at least one."""
    text = f"{value:.4f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def save(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> None:
    """Write JSON that people can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_files.write(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _write(line: str, stream: TextIO) -> None:
    stream.write(line + "\n")
    stream.flush()
