"""Describes why a program could not be started, and what to do. Linux' limits: execve(2)."""

import errno
import os
from collections.abc import Mapping, Sequence

MOST_STRING_BYTES = 131072
"""Limit of one argument or one `NAME=value`, including its terminating zero byte (MAX_ARG_STRLEN of Linux)."""


def passable(environment: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The variables that Linux can pass to a program, and a warning about those that are too large; empty if none is.

    SM_HPS, SM_USER_ARGS and SM_TRAINING_ENV may be too large: they contain all hyperparameters.
    """
    sizes = {name: len(os.fsencode(f"{name}={value}")) + 1 for name, value in environment.items()}
    kept = {name: value for name, value in environment.items() if sizes[name] <= MOST_STRING_BYTES}
    left_out = ", ".join(f"{name} ({sizes[name]:,} bytes)" for name in sorted(sizes.keys() - kept.keys()))
    if not left_out:
        return kept, ""
    return kept, (
        f"warning: not set for the program: {left_out}; a variable may have at most {MOST_STRING_BYTES:,} bytes in "
        "Linux. Read the hyperparameters from /opt/ml/input/config/hyperparameters.json, or from the program's "
        "arguments"
    )


def start_error_sentence(
    name: str, command: Sequence[str], environment: Mapping[str, str], error: OSError, cwd: str = ""
) -> str:
    """Why `command`, the program `name`, could not be started in `cwd` with this environment."""
    what = command[0] if command else name
    if error.errno == errno.E2BIG:
        return f"{name} could not be started: {_too_big(command, environment)}"
    if error.errno in (errno.ENOMEM, errno.EAGAIN):
        resource = "memory" if error.errno == errno.ENOMEM else "room for one more process or thread"
        return (
            f"{name} could not be started: the host has no {resource} ({error.strerror}); use fewer processes per host "
            "or a larger instance."
        )
    if error.errno in (errno.EACCES, errno.ENOENT, errno.ENOTDIR) and cwd and not os.access(cwd, os.X_OK):
        return f"{name} could not be started: its folder {cwd} can't be entered ({error.strerror})."
    if error.errno == errno.EACCES:
        return f"{name} could not be started: {what} is not executable ({error.strerror}); run chmod +x on it."
    if error.errno == errno.ENOEXEC:
        return (
            f"{name} could not be started: {what} is not a program for this machine ({error.strerror}); a script needs "
            "a first line such as #!/bin/bash, a binary must be for linux/amd64."
        )
    if error.errno == errno.ENOENT:
        return f"{name} could not be started: {what} does not exist, or the interpreter in its first line does not."
    return f"{name} could not be started: {what}: {error.strerror}."


def _too_big(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The string that is too long, or the largest string if only their sum is too long."""
    strings = {f"argument {number}": len(os.fsencode(word)) + 1 for number, word in enumerate(command)}
    strings |= {name: len(os.fsencode(f"{name}={value}")) + 1 for name, value in environment.items()}
    label, size = max(strings.items(), key=lambda item: item[1])
    if size > MOST_STRING_BYTES:
        label += f" ({command[int(label.split()[1])][:40]}…)" if label.startswith("argument ") else ""
        return f"{label} has {size:,} bytes, and Linux allows at most {MOST_STRING_BYTES:,} in one; make it shorter."
    most = os.sysconf("SC_ARG_MAX")
    return (
        f"its arguments and environment have {sum(strings.values()):,} bytes, and Linux allows at most {most:,} for a "
        f"program; the largest is {label} with {size:,}: make them shorter."
    )
