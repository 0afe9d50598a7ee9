"""Shared by all programs in bench/: parse a command line, describe the measurement, report an error."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, NoReturn

from bench.machine import as_text, parse_cores, this_cpu
from berth.common.errors import UserError
from berth.images.build.revision import read_revision
from berth.images.pins import pins

if TYPE_CHECKING:  # a machine with a GPU may have torch alone
    from docker import DockerClient


def make_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m bench.NAME`. --help shows the module's docstring `doc` without its line "Usage: …"."""
    description = "\n\n".join(part for part in (doc or "").split("\n\n") if not part.startswith("Usage:"))
    return argparse.ArgumentParser(
        prog=f"python -m bench.{name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def positive(text: str) -> int:
    """The type of an option that is a whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def above_zero(text: str) -> float:
    """The type of an option that is a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def setting(name: str, words: Sequence[str], client: "DockerClient | None" = None, cores: Sequence[int] = ()) -> str:
    """The command, the machine and the versions, for the beginning of a page of results.

    Pass a client if containers are measured, and nothing if torch and transformers run in this environment. The
    default for `cores` is all.
    """
    command = shlex.join(["python", "-m", f"bench.{name}", *words])
    if client:
        software = f"engine {client.version()['Version']}"
    else:
        software = ", ".join(f"{package} {metadata.version(package)}" for package in ("torch", "transformers"))
    used = as_text(cores or parse_cores(None))
    return f"`{command}`, {this_cpu()}, cores {used} of {os.cpu_count()}, {software}, berth {read_revision(pins.ROOT)}"


def end_with(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run `main` with the command line's words and exit. SIGTERM raises SystemExit, so that containers are removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(f"berth: error: {error}")
    except ModuleNotFoundError as missing:
        sys.exit(f"berth: error: the package {missing.name} is not installed here: run `make setup-tests`.")
    except KeyboardInterrupt:
        sys.exit(130)
