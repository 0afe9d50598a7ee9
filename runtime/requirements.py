"""pip for what a user asks for: what it says, readable, and why it failed, in one sentence."""

import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.contract.masking import mask_text

FILE = "requirements.txt"
_UNREACHED = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|Name or service not known|Temporary failure in name resolution|Connection refused|"
    r"No route to host|Network is unreachable|ConnectTimeoutError|ReadTimeoutError|ProxyError"
)
# pip says so up to five times for each package, in 300 characters.
_RETRYING = re.compile(r"WARNING: Retrying \(Retry\(")
_INDEXES = re.compile(r"Looking in (?:indexes|links): (.+)")
_PUBLIC_INDEX = "https://pypi.org/simple"
_LINE_CHARACTERS = 200
_VENDOR = "put the wheels next to it and `--no-index --find-links .` into its first line"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What pip is to install: its name in a sentence, and pip's own arguments for it."""

    name: str
    arguments: tuple[str, ...]


REQUIREMENTS = Wanted(FILE, ("-r", FILE))


class RequirementsError(Exception):
    """A requirements.txt can't be installed; one sentence."""


def install(folder: Path, python: str, say: Callable[[str], None], wanted: Wanted = REQUIREMENTS) -> None:
    """pip install for that interpreter, in `folder`, so that vendored wheels can be named by relative paths. `say` gets
    pip's lines; RequirementsError with the reason if it fails.
    """
    # -P: a user's own module next to requirements.txt must not stand in for one of pip's.
    process = subprocess.Popen(
        [python, "-P", "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir", *wanted.arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    tail: deque[str] = deque(maxlen=40)
    index = _PUBLIC_INDEX

    def lines(stream: Iterable[str]) -> Iterator[str]:
        nonlocal index
        for line in stream:
            tail.append(line.rstrip())
            index = found[1] if (found := _INDEXES.match(line)) else index
            yield line.rstrip()

    for line in readable(lines(process.stdout)):
        say(mask_text(line))
    if process.wait() != 0:
        raise RequirementsError(mask_text(failed_install(tail, index, wanted.name)))


def readable(output: Iterable[str]) -> Iterator[str]:
    """pip's output for the log: that it tries an index again in a few words and once, and no line without end."""
    seen: set[str] = set()
    for line in output:
        if _RETRYING.match(line):
            match = _UNREACHED.search(line)
            line = f"the package index can't be reached ({match[0] if match else 'no answer'}), trying again"
            if line in seen:
                continue
            seen.add(line)
        yield line if len(line) <= _LINE_CHARACTERS else line[: _LINE_CHARACTERS - 1] + "…"


def failed_install(output: Sequence[str], index: str = _PUBLIC_INDEX, name: str = FILE) -> str:
    """The sentence for pip's output: its error, or that it reached no index, which pip calls a missing version."""
    if obstacle := next((match[0] for line in output if (match := _UNREACHED.search(line))), None):
        return (
            f"{name} could not be installed, for the package index {index} can't be reached ({obstacle}); "
            f"give the container a network and certificates that reach one, or {_VENDOR}."
        )
    error = next((line for line in output if line.startswith("ERROR:")), output[-1] if output else "no reason given")
    reason = f"{error.removeprefix('ERROR: ')}; index: {index}"
    return f"{name} could not be installed ({reason}); fix it, or {_VENDOR}."
