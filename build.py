#!/usr/bin/env python3
"""The command line of berth: builds, tests, runs, pushes and maintains the training and the inference image.

This file lists the folders that have commands, and prints errors; the commands are in each folder's commands.py.
Results go to stdout, progress and errors to stderr. A mistake of the user is one sentence and a non-zero exit code.
"""

import errno
import gc
import os
import signal
import sys
from importlib import import_module
from typing import Any

if __name__ == "__main__":
    # Imported modules are never garbage: collecting while they load takes a quarter of the time of a short command.
    gc.disable()

_NOT_INSTALLED = (
    "berth: error: the package {} is not installed here: run `make setup`, then `.venv/bin/python build.py`."
)
_NO_LINKS = (
    "berth: error: the folder berth has plain files instead of links, as some programs for zip files and git on "
    "Windows write them: clone the repository with git where links work, `git clone -c core.symlinks=true`."
)

try:
    import typer
    from rich.markup import escape
    from typer.core import TyperGroup

    from berth.common.command_line import explain_usage, meant_commands
    from berth.common.console import note, say
    from berth.common.errors import UserError
    from berth.local.signals import Interrupted
except ModuleNotFoundError as missing:
    has_links = os.path.isdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "berth", "train"))
    sys.exit(_NOT_INSTALLED.format(missing.name) if has_links else _NO_LINKS)

FOLDERS = ("images", "local", "images.inspect", "images.profiles", "ecr")
"""Packages below berth whose commands.py registers commands, in the order of --help: those used most come first."""


class CommandLine(TyperGroup):
    """Imports one folder after the other until one has the command. ecr is last: importing boto3 alone takes longer
    than a build with nothing to do.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._not_imported = list(FOLDERS)

    def list_commands(self, ctx: Any) -> list[str]:
        while self._not_imported:
            self._import_next()
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # For an unknown name all folders are imported, because the error suggests similar commands.
        while self._not_imported and cmd_name not in self.commands:
            self._import_next()
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            if "Did you mean" not in error.message and (meant := meant_commands(args[0], self.commands)):
                error.message = f"{error.message.rstrip('.')}. Did you mean {' or '.join(map(repr, meant))}?"
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # typer would exit with the code only, without a sentence
            raise Interrupted(signal.SIGINT) from None

    def _import_next(self) -> None:
        app = import_module(f"berth.{self._not_imported.pop(0)}.commands").app
        self.commands.update(typer.main.get_group(app).commands)


def find_aws() -> tuple[str | None, str | None, str]:
    """AWS's credentials, region and settings on this machine, for `doctor`: images/ may not import ecr/, so it gets
    this function.
    """
    from berth.ecr.repositories.aws import find_settings  # importing boto3 takes half a second

    return find_settings()


def _hyperparameter_names() -> frozenset[str]:
    from berth.local.train.hyperparameter_list import common_names  # only needed for an error

    return common_names()


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns the exit code. Prints all errors of a command that a user can cause."""
    command = CommandLine(name="build.py", help=__doc__.split("\n")[0], no_args_is_help=True, rich_markup_mode=None)
    try:
        code = command(arguments, prog_name=command.name, standalone_mode=False, obj=find_aws)
        sys.stdout.flush()  # a full disk is reported here; at its exit Python would end with code 120
    except UserError as error:
        note.print(f"[red]berth: error:[/red] {escape(str(error))}", soft_wrap=True)
        return error.exit_code
    except typer.Exit as end:
        return int(end.exit_code)
    except Interrupted as stop:
        say(str(stop))
        return stop.exit_code
    except ModuleNotFoundError as missing:
        say(_NOT_INSTALLED.format(missing.name))
        return 1
    except typer.TyperException as error:
        # Without a command the message is the help text.
        is_help = str(error).startswith("Usage:")
        say(str(error) if is_help else f"berth: error: {explain_usage(error, _hyperparameter_names())}")
        return 2
    except Exception as error:
        if not (sentence := _explain(error)):
            raise
        say(f"berth: error: {sentence}")
        return 1
    return int(code) if isinstance(code, int) else 0


def _explain(error: Exception) -> str:
    """A sentence for a full disk or an error of the Docker engine; empty for any other error."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"{error.strerror} for {error.filename or 'the output'}: free some, then run the command again."
    from berth.common.engine_errors import explain  # importing the SDK takes 0.2 s, and only errors need it

    return explain(error)


if __name__ == "__main__":
    # SIGTERM raises SystemExit, so that cleanup runs as after Ctrl-C. `run` has its own handlers (local/signals.py).
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    exit_code = main()
    try:
        sys.stdout.flush()
    except OSError:  # already reported; Python's exit must not try to write it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(exit_code)
