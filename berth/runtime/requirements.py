"""pip for what a user asks for: what it says, readable, and why it failed, in one sentence."""

import contextlib
import os
import platform
import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from berth.contract.masking import mask_text
from berth.runtime.hints.images import this_image
from berth.runtime.hints.program import PackageNote
from berth.runtime.hints.replaced_packages import package_note
from berth.runtime.installed_packages import installed_packages
from berth.runtime.missing_tools import missing_tool_sentence
from berth.runtime.pip_environment import CHANNEL, PipEnvironment, pip_environment, trust

FILE = "requirements.txt"
_UNREACHED = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|Name or service not known|Temporary failure in name resolution|Connection refused|"
    r"No route to host|Network is unreachable|ConnectTimeoutError|ReadTimeoutError|ProxyError|"
    r"NO_CERTIFICATE_OR_CRL_FOUND|40[37] Client Error|401 Error"
)
# pip says so up to five times for each package, in 300 characters.
_RETRYING = re.compile(r"\s*WARNING: Retrying \(Retry\(")
# Folders and pages of links come after the indexes; the public index is not named.
_PLACES = re.compile(r"Looking in (indexes|links): (.+)")
_PACKAGE = re.compile(r"(?:satisfies the requirement|No matching distribution found for) ([^\s;(]+)")
# What pip says after the output of a setup.py or another build.
_END_OF_BUILD = "[end of output]"
_COLLECTING = re.compile(r"Collecting (\S+)")
_OTHER_PYTHON = re.compile(r"Ignored the following versions that require a different python version: (.*)")
_PUBLIC_INDEX = "https://pypi.org/simple"
_LINE_CHARACTERS = 200
# pip says at the begin from which line a requirement comes, and at the end why a build failed.
_KEPT_LINES, _TAIL_LINES = 3000, 40
_VENDOR = "put the wheels next to it and `--no-index` into its first line"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What pip is to install: its name in a sentence, and pip's own arguments for it."""

    name: str
    arguments: tuple[str, ...]


REQUIREMENTS = Wanted(FILE, ("-r", FILE))


class RequirementsError(Exception):
    """A requirements.txt can't be installed; one sentence."""


def install(
    folder: Path,
    python: str,
    say: Callable[[str], None],
    wanted: Wanted = REQUIREMENTS,
    certificates: Path | None = None,
) -> PackageNote | None:
    """pip install for that interpreter, in `folder`, so that vendored wheels can be named by relative paths, or not at
    all. `say` gets pip's lines; `certificates` is a folder of those that it trusts as well.

    Returns what it replaced in the image; RequirementsError with the reason if it fails.
    """
    settings = pip_environment(folder, os.environ, certificates)
    if missing := next((str(path) for path in settings.certificates if not path.exists()), None):
        raise RequirementsError(
            f"{wanted.name} could not be installed, because the certificate {missing}, which PIP_CERT or "
            "REQUESTS_CA_BUNDLE names, is not there; give its path in the container, or one inside the source folder."
        )
    before = installed_packages(python)
    code, output = _run_pip(folder, python, say, wanted, settings)
    text = _text(folder, wanted)
    if code != 0:
        places = {match[1]: match[2] for line in output if (match := _PLACES.match(line))}
        sentence = missing_tool_sentence(output, wanted.name, text)
        sentence = sentence or failed_install(output[-_TAIL_LINES:], places, wanted.name, settings.certificates)
        raise RequirementsError(mask_text(sentence))
    return package_note(before, installed_packages(python), wanted.name, text, this_image())


def _run_pip(
    folder: Path, python: str, say: Callable[[str], None], wanted: Wanted, settings: PipEnvironment
) -> tuple[int, list[str]]:
    """pip's exit code and its last lines."""
    with TemporaryDirectory() as scratch:
        trusted = trust(_one_file(settings.certificates, Path(scratch))) if settings.certificates else {}
        # -P: a user's own module next to requirements.txt must not stand in for one of pip's.
        process = subprocess.Popen(
            [
                python,
                "-P",
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                *settings.arguments,
                *wanted.arguments,
            ],
            cwd=folder,
            env={**os.environ, **settings.variables, **trusted},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        output: deque[str] = deque(maxlen=_KEPT_LINES)

        def lines(stream: Iterable[str]) -> Iterator[str]:
            for line in stream:
                output.append(line.rstrip())
                yield line.rstrip()

        for line in readable(lines(process.stdout)):
            say(mask_text(line))
        return process.wait(), list(output)


def _text(folder: Path, wanted: Wanted) -> str:
    """What the requirements file says; "" for what is no such file."""
    with contextlib.suppress(OSError, ValueError):
        return (folder / wanted.arguments[wanted.arguments.index("-r") + 1]).read_text("utf-8", "replace")
    return ""


def _one_file(certificates: Sequence[Path], scratch: Path) -> Path:
    """What pip takes as one path: the only one as it is, several in a file in `scratch`."""
    if len(certificates) == 1:
        return certificates[0]
    bundle = scratch / "certificates.pem"
    bundle.write_bytes(b"\n".join(path.read_bytes() for path in certificates))
    return bundle


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


def failed_install(
    output: Sequence[str],
    places: Mapping[str, str] = MappingProxyType({}),
    name: str = FILE,
    certificates: Sequence[Path] = (),
) -> str:
    """The sentence for pip's output: its error, or that it reached no index, which pip calls a missing version.

    places: where pip says that it looked, `indexes` and `links`; of the public index it says nothing. certificates:
    the files that pip trusted, none for the system's.
    """
    if obstacle := next((match[0] for line in output if (match := _UNREACHED.search(line))), None):
        package = next((f" for {match[1]}" for line in output if (match := _PACKAGE.search(line))), "")
        trusted = ", ".join(map(str, certificates)) or "the system's"
        index = places.get("indexes", _PUBLIC_INDEX)
        return (
            f"{name} could not be installed, because the package index {index} can't be reached{package} "
            f"({obstacle}; trusted certificates: {trusted}); name one that the container reaches by PIP_INDEX_URL, "
            f"and its certificate by PIP_CERT or, of a job, in a channel called {CHANNEL}, or {_VENDOR}."
        )
    if built := [before for before, line in pairwise(output) if line.strip() == _END_OF_BUILD]:
        package = next((f" {match[1]}" for line in reversed(output) if (match := _COLLECTING.match(line))), "")
        return (
            f"{name} could not be installed:{package} has no wheel for this image, and its build ended with "
            f"{built[0].strip()}; take a version that has a wheel, or put a wheel of it next to {name}."
            if package
            else f"{name} could not be installed (a build ended with: {built[0].strip()}); correct what is built."
        )
    if other := next((match[1] for line in output if (match := _OTHER_PYTHON.search(line))), ""):
        wanted = next((match[1] for line in output if (match := _PACKAGE.search(line))), "a requirement")
        version = wanted.partition("==")[2]
        if version and re.search(rf"(?<![\w.]){re.escape(version)} Requires-Python", other):
            return (
                f"{name} could not be installed: {wanted} is not for Python {platform.python_version()} of this image; "
                "take another version of it, or leave the version out."
            )
    errors = [line for line in output if line.startswith("ERROR:") and not line.startswith("ERROR: Ignored ")]
    error = errors[0] if errors else output[-1] if output else "no reason given"
    reason = f"{error.removeprefix('ERROR: ')}; {_looked_in(places)}"
    return f"{name} could not be installed ({reason}); fix it, or {_VENDOR}."


def _looked_in(places: Mapping[str, str]) -> str:
    """The places in words; pip names the public index in no way, and so not that it is turned off either."""
    if "indexes" not in places and "links" in places:
        return f"wheels in {places['links']}, and the public index unless it is turned off"
    index = f"index: {places.get('indexes', _PUBLIC_INDEX)}"
    return f"{index}; wheels in {places['links']}" if "links" in places else index
