"""Drops those of our mpirun settings that conflict with the user's. Pure, except for reading files.

Open MPI takes a parameter from its command line, its environment or its files. Two that contradict each other, such as
an include and an exclude list of interfaces, make it hang or refuse to start. If a parameter is set twice, it silently
uses one of the values. So ours is dropped if the user has set the same parameter, or its opposite, under any of its
names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from berth.runtime.host_files import read_text

_PARAMETER_OPTIONS = ("mca", "gmca")
_VARIABLE = "OMPI_MCA_"
_CUSTOM_OPTIONS = "your custom MPI options set"
BIND_TO = "bind-to"
SSH_ARGUMENTS = "plm_rsh_args"

# Our parameter → all other names, deprecated ones too, of the same setting or its opposite (ompi_info of 4.1.8).
_CONFLICTS = {
    "btl_tcp_if_include": ("btl_tcp_if_exclude",),
    "oob_tcp_if_include": ("oob_tcp_if_exclude", "oob_tcp_include", "oob_tcp_exclude"),
    BIND_TO: (
        "hwloc_base_binding_policy",
        "hwloc_base_bind_to_core",
        "hwloc_base_bind_to_socket",
        "hwloc_default_binding_policy",
    ),
    "plm_rsh_agent": ("pls_rsh_agent", "orte_rsh_agent"),
}


@dataclass(frozen=True, slots=True)
class UserSetting:
    """A value that the user sets. `source` precedes the name in a sentence: "the variable OMPI_MCA_… sets"."""

    value: str
    source: str


def file_settings(path: Path) -> dict[str, UserSetting]:
    """The settings in a file of lines `name = value`, such as Open MPI's, by name; empty if the file is missing."""
    lines = read_text(path).splitlines()
    pairs = (line.partition("=") for line in lines if not line.lstrip().startswith("#"))
    return {name.strip(): UserSetting(value.strip(), f"{path} sets") for name, equals, value in pairs if equals}


def user_settings(
    options: Sequence[str], environ: Mapping[str, str], files: Mapping[str, UserSetting] = MappingProxyType({})
) -> dict[str, UserSetting]:
    """The user's settings for mpirun, by name: from custom `options`, mpirun's environment and `files`."""
    settings = dict(files)
    for variable, value in environ.items():
        if variable.startswith(_VARIABLE) and value:
            settings[variable.removeprefix(_VARIABLE)] = UserSetting(value, f"the variable {variable} sets")
    for at, word in enumerate(options):
        plain, rest = word.lstrip("-"), options[at + 1 : at + 3]
        if plain == word:
            continue
        if plain in _PARAMETER_OPTIONS and len(rest) == 2:
            settings[rest[0]] = UserSetting(rest[1], _CUSTOM_OPTIONS)
        elif plain.startswith(BIND_TO):  # --bind-to-core as well
            settings[BIND_TO] = UserSetting("", _CUSTOM_OPTIONS)
    return settings


def without_conflicts(
    ours: Mapping[str, str], theirs: Mapping[str, UserSetting]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The settings of `ours` that do not conflict with `theirs`, and a line of the launch plan for each dropped one."""
    kept, reasons = {}, []
    for name, value in ours.items():
        conflict = next((other for other in (name, *_CONFLICTS.get(name, ())) if other in theirs), None)
        if conflict is None:
            kept[name] = value
        elif name == SSH_ARGUMENTS:
            # ssh needs ours, which name the job's key, so the user's arguments are added to them.
            kept[name] = f"{value} {theirs[name].value}"
        else:
            reasons.append(f"{theirs[conflict].source} {conflict}, so mpirun does not get the plan's {name} {value}")
    return kept, tuple(reasons)


def without_ssh_arguments(options: Sequence[str]) -> tuple[str, ...]:
    """The custom options without ssh's arguments, which `without_conflicts` has added to ours."""
    at = next((at for at, word in enumerate(options) if word == SSH_ARGUMENTS), None)
    return tuple(options) if at is None else without_ssh_arguments((*options[: at - 1], *options[at + 2 :]))
