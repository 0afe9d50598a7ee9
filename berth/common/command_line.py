"""Errors in build.py's command line: what is wrong, which option or command was probably meant, which help to read."""

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any


def meant_commands(typed: str, commands: Mapping[str, Any]) -> list[str]:
    """Commands in groups, such as `run train`, that an unknown command may mean."""
    inner = {
        f"{group} {name}": name for group, command in commands.items() for name in getattr(command, "commands", {})
    }
    same = [path for path, name in inner.items() if name == typed]
    return same or [path for path, name in inner.items() if get_close_matches(typed, [name])]


def explain_usage(error: Exception, hyperparameters: Collection[str]) -> str:
    """One sentence that names the wrong option or word and the help to read.

    hyperparameters: their usual names; `run train` takes them with -p.
    """
    command = str(getattr(getattr(error, "ctx", None), "command_path", "build.py"))
    help_of = f"`python {command} --help`"
    mistake = str(error).removeprefix("Value error, ").rstrip(".")
    if mistake.endswith("?"):
        mistake = mistake.replace(". Did you mean ", " (did you mean ").replace("?", "?)")
    parameter = getattr(error, "param", None)
    details: list[Any] = getattr(error.__cause__, "errors", list)()  # of pydantic, which typer uses
    if details and details[0]["type"] == "int_parsing":
        mistake = f"{details[0]['input']!r} is not a whole number"
    if parameter is not None:
        # As in --help: an argument's metavar, an option's name.
        name = parameter.metavar if parameter.param_type_name == "argument" else None
        name = name or parameter.opts[0]
        if mistake.startswith("Missing parameter"):
            return f"{name} is missing; see {help_of}."
        return f"{name}: {mistake}; see {help_of}."
    is_run_train = command.endswith("run train")
    if hasattr(error, "possibilities"):  # an unknown option
        option = str(getattr(error, "option_name", ""))
        near = list(error.possibilities or [])
        mistake = f"unknown option {option}" + _meant_option(option, near, hyperparameters if is_run_train else ())
    elif mistake.startswith("Got unexpected extra argument"):
        words = mistake.partition("(s) (")[2].rstrip(")")
        mistake = f"{words!r} is one word too many"
        if is_run_train:
            mistake += ": a hyperparameter is one word, `-p name=value`"
    return f"{mistake}; see {help_of}."


def _meant_option(option: str, near: Sequence[str], hyperparameters: Collection[str]) -> str:
    plain = option.lstrip("-").partition("=")[0].replace("-", "_")
    if plain in hyperparameters:
        return f" (pass a hyperparameter with `-p {plain}=VALUE`)"
    return f" (did you mean {near[0]}?)" if near else ""
