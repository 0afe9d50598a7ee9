"""What all programs of bench/ have in common: how they read a command line, how they begin a page, and how they end."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import NoReturn

from docker import DockerClient

from bench.machine import as_text, cores_of, this_cpu
from berth.common.errors import UserError
from berth.images.build.revision import read_revision
from berth.images.pins import pins


def make_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m bench.NAME`; `doc` is its module's, which --help shows but for the line of its usage."""
    told = "\n\n".join(part for part in (doc or "").split("\n\n") if not part.startswith("Usage:"))
    return argparse.ArgumentParser(
        prog=f"python -m bench.{name}", description=told, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def positive(text: str) -> int:
    """A whole number from 1 on; argparse says so of what is none."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def above_zero(text: str) -> float:
    """A number above 0; argparse says so of what is none."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def setting(name: str, words: Sequence[str], client: DockerClient | None = None, cores: Sequence[int] = ()) -> str:
    """The command and the machine, for the first lines of a file of results.

    Without a client the program runs torch and transformers here, without an engine; without cores it uses all.
    """
    command = shlex.join(["python", "-m", f"bench.{name}", *words])
    if client:
        runs = f"engine {client.version()['Version']}"
    else:
        runs = ", ".join(f"{package} {metadata.version(package)}" for package in ("torch", "transformers"))
    used = as_text(cores or cores_of(None))
    return f"`{command}`, {this_cpu()}, cores {used} of {os.cpu_count()}, {runs}, kit {read_revision(pins.ROOT)}"


def end_with(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Runs `main` with the command line's words; a SIGTERM takes the containers along, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(f"berth: error: {error}")
    except ModuleNotFoundError as missing:
        sys.exit(f"berth: error: the package {missing.name} is not installed here: run `make setup-tests`.")
    except KeyboardInterrupt:
        sys.exit(130)
