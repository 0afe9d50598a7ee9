"""Installs a user's requirements with pip: shortens its output and explains a failure in one sentence."""

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
from berth.runtime.missing_tools import missing_tool_sentence
from berth.runtime.pip_environment import CHANNEL, PipEnvironment, pip_environment, trust

FILE = "requirements.txt"
_UNREACHED = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|Name or service not known|Temporary failure in name resolution|Connection refused|"
    r"No route to host|Network is unreachable|ConnectTimeoutError|ReadTimeoutError|ProxyError|"
    r"NO_CERTIFICATE_OR_CRL_FOUND|40[37] Client Error|401 Error"
)
# pip prints this up to five times per package, with 300 characters.
_RETRYING = re.compile(r"\s*WARNING: Retrying \(Retry\(")
# pip prints indexes first, then folders and pages of links; it does not print the public index.
_PLACES = re.compile(r"Looking in (indexes|links): (.+)")
_PACKAGE = re.compile(r"(?:satisfies the requirement|No matching distribution found for) ([^\s;(]+)")
# pip prints this after the output of a setup.py or another build.
_END_OF_BUILD = "[end of output]"
_COLLECTING = re.compile(r"Collecting (\S+)")
_OTHER_PYTHON = re.compile(r"Ignored the following versions that require a different python version: (.*)")
_PUBLIC_INDEX = "https://pypi.org/simple"
_LINE_CHARACTERS = 200
# pip prints a requirement's line at the start, and why a build failed at the end.
_KEPT_LINES, _TAIL_LINES = 3000, 40
_VENDOR = "put the wheels next to it and `--no-index` into its first line"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Something to install: its name in messages, and pip's arguments."""

    name: str
    arguments: tuple[str, ...]


REQUIREMENTS = Wanted(FILE, ("-r", FILE))


class RequirementsError(Exception):
    """The requirements can't be installed; the message is one sentence."""


def install(
    folder: Path,
    python: str,
    say: Callable[[str], None],
    wanted: Wanted = REQUIREMENTS,
    certificates: Path | None = None,
) -> PackageNote | None:
    """Run pip install for an interpreter in `folder`, so that wheels there are found, also by relative paths.

    say: gets pip's lines. certificates: a folder of additional certificates to trust.

    Returns a note on packages of the image that were replaced; RequirementsError with the reason if pip fails.
    """
    settings = pip_environment(folder, os.environ, certificates)
    if missing := next((str(path) for path in settings.certificates if not path.exists()), None):
        raise RequirementsError(
            f"{wanted.name} could not be installed, because the certificate {missing} of PIP_CERT or "
            "REQUESTS_CA_BUNDLE does not exist; give its path in the container, or one inside the source folder."
        )
    code, output = _run_pip(folder, python, say, wanted, settings)
    text = _text(folder, wanted)
    if code != 0:
        places = {match[1]: match[2] for line in output if (match := _PLACES.match(line))}
        sentence = missing_tool_sentence(output, wanted.name, text)
        sentence = sentence or failed_install(output[-_TAIL_LINES:], places, wanted.name, settings.certificates)
        raise RequirementsError(mask_text(sentence))
    return package_note(output, wanted.name, text, this_image())


def _run_pip(
    folder: Path, python: str, say: Callable[[str], None], wanted: Wanted, settings: PipEnvironment
) -> tuple[int, list[str]]:
    """pip's exit code and its last lines."""
    with TemporaryDirectory() as scratch:
        trusted = trust(_one_file(settings.certificates, Path(scratch))) if settings.certificates else {}
        # -P: a user's module next to requirements.txt must not hide one of pip's.
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
    """The text of the requirements file; "" if there is none."""
    with contextlib.suppress(OSError, ValueError):
        return (folder / wanted.arguments[wanted.arguments.index("-r") + 1]).read_text("utf-8", "replace")
    return ""


def _one_file(certificates: Sequence[Path], scratch: Path) -> Path:
    """One path for pip: several certificates are joined into a file in `scratch`."""
    if len(certificates) == 1:
        return certificates[0]
    bundle = scratch / "certificates.pem"
    bundle.write_bytes(b"\n".join(path.read_bytes() for path in certificates))
    return bundle


def readable(output: Iterable[str]) -> Iterator[str]:
    """pip's output for the log: a retry is logged once and briefly, and long lines are cut."""
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
    """The sentence for a failed pip: its error, or the unreachable index that it reports as a missing version.

    places: the `indexes` and `links` that pip printed; it does not print the public index. certificates: the files that
    pip trusted; empty for the system's.
    """
    if obstacle := next((match[0] for line in output if (match := _UNREACHED.search(line))), None):
        package = next((f" for {match[1]}" for line in output if (match := _PACKAGE.search(line))), "")
        trusted = ", ".join(map(str, certificates)) or "the system's"
        index = places.get("indexes", _PUBLIC_INDEX)
        return (
            f"{name} could not be installed, because the package index {index} can't be reached{package} "
            f"({obstacle}; trusted certificates: {trusted}); set PIP_INDEX_URL to an index that the container can "
            f"reach, and PIP_CERT to its certificate (a job may have it in a channel called {CHANNEL}), or {_VENDOR}."
        )
    if build_errors := [before for before, line in pairwise(output) if line.strip() == _END_OF_BUILD]:
        package = next((f" {match[1]}" for line in reversed(output) if (match := _COLLECTING.match(line))), "")
        return (
            f"{name} could not be installed:{package} has no wheel for this image, and its build ended with "
            f"{build_errors[0].strip()}; take a version that has a wheel, or put a wheel of it next to {name}."
            if package
            else f"{name} could not be installed (a build ended with: {build_errors[0].strip()}); fix that package."
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
    """The places that pip searched. It never prints the public index, so this can't tell whether that is turned off."""
    if "indexes" not in places and "links" in places:
        return f"wheels in {places['links']}, and the public index unless it is turned off"
    index = f"index: {places.get('indexes', _PUBLIC_INDEX)}"
    return f"{index}; wheels in {places['links']}" if "links" in places else index
