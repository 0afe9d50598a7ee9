"""Writes run_qa's log lines, and readable JSON.

Tuning jobs and notebooks read metrics from the log with regular expressions (METRIC_PATTERNS). `metric` writes the
lines that these should match, as `name = number`. No other line may match. And mpirun mixes the output of several
ranks, so every line is written whole, in one write.
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
    """`text` as one line without secrets. If a metric pattern would match it, its equals signs become colons."""
    line = mask_text(" ".join(text.split("\n")).rstrip())
    return line.replace("=", ":") if any(re.search(pattern, line) for pattern in METRIC_PATTERNS) else line


def say(text: str) -> None:
    """Write one line that is not a metric, in one write, because ranks and hosts share the log."""
    _write(plain(text), sys.stdout)


def failure(sentence: str) -> None:
    """Report why the job ends: to the launcher, which writes it to the log of every host, or as the last line of stderr
    if there is no launcher. The launcher truncates the sentence, so a longer one is also written to stderr.
    """
    if not write_failure(sentence) or len(sentence) > SENTENCE_CHARACTERS:
        sys.stdout.flush()
        _write(ERROR_PREFIX + plain(sentence), sys.stderr)


def metric(name: str, value: float) -> None:
    """Write one metric as `name = number`, for the regular expressions of notebooks and tuning jobs."""
    _write(f"{name} = {number(value)}", sys.stdout)


def number(value: float) -> str:
    """`value` as a decimal number with one to four decimals and no exponent."""
    text = f"{value:.4f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def save(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> None:
    """Write indented JSON; the file is either complete or unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_files.write(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _write(line: str, stream: TextIO) -> None:
    stream.write(line + "\n")
    stream.flush()
