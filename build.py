#!/usr/bin/env python3
"""The command line of berth: builds, tests, runs and looks after the training and the inference image.

Here is which folders have commands, and what becomes of an error; the commands themselves are in the folders'
commands.py. Results go to stdout, progress and errors to stderr; a mistake of the user is one sentence and exit code 1.
"""

import errno
import gc
import os
import signal
import sys
from importlib import import_module
from typing import Any

if __name__ == "__main__":
    # What is imported stays: looking through it for garbage takes a quarter of the time of a command with little to do.
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
    linked = os.path.isdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "berth", "train"))
    sys.exit(_NOT_INSTALLED.format(missing.name) if linked else _NO_LINKS)

FOLDERS = ("images", "local", "images.inspect", "images.profiles", "ecr")
"""Whose commands.py registers commands, by their names, in the order of --help. The first have what is typed most."""


class CommandLine(TyperGroup):
    """Imports folders until one has the command that is asked for: boto3 alone takes longer than a build with nothing
    to do, and comes last.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._not_imported = list(FOLDERS)

    def list_commands(self, ctx: Any) -> list[str]:
        while self._not_imported:
            self._import_next()
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # Without one of that name all are imported: among them the one is looked for that a misspelt name may mean.
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
        except KeyboardInterrupt:  # of which typer makes the exit code alone
            raise Interrupted(signal.SIGINT) from None

    def _import_next(self) -> None:
        app = import_module(f"berth.{self._not_imported.pop(0)}.commands").app
        self.commands.update(typer.main.get_group(app).commands)


def find_aws() -> tuple[str | None, str | None, str]:
    """What AWS's clients find on this machine, for `doctor`: images/ knows nothing of ecr/, and gets it from here."""
    from berth.ecr.repositories.aws import find_settings  # boto3 takes half a second, which every command would pay

    return find_settings()


def _hyperparameter_names() -> frozenset[str]:
    from berth.local.train.hyperparameter_list import common_names  # for an error alone

    return common_names()


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; every error that a user can cause is printed here and nowhere else."""
    command = CommandLine(name="build.py", help=__doc__.split("\n")[0], no_args_is_help=True, rich_markup_mode=None)
    try:
        code = command(arguments, standalone_mode=False, obj=find_aws)
        sys.stdout.flush()  # here, where a full disk becomes a sentence; Python's own end makes exit code 120 of it
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
        # Without a command the message is the help itself.
        help_itself = str(error).startswith("Usage:")
        say(str(error) if help_itself else f"berth: error: {explain_usage(error, _hyperparameter_names())}")
        return 2
    except Exception as error:
        if not (sentence := _explain(error)):
            raise
        say(f"berth: error: {sentence}")
        return 1
    return int(code) if isinstance(code, int) else 0


def _explain(error: Exception) -> str:
    """A full disk, or what the Docker engine would not do, whichever command met it; empty for any other error."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"{error.strerror} for {error.filename or 'the output'}: free some, then run the command again."
    from berth.common.engine_errors import explain  # the SDK takes a fifth of a second, and this is for an error alone

    return explain(error)


if __name__ == "__main__":
    # As an exception, so that what is cleaned up after Ctrl-C is after SIGTERM as well; a run catches it by itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    exit_code = main()
    try:
        sys.stdout.flush()
    except OSError:  # what could not be written has been said, and is not to be tried once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(exit_code)
