"""Which of our settings for mpirun stay beside those that the user gives it. Pure, but for reading files.

Open MPI takes a parameter from its command line, its environment or its files. Two that contradict each other, such as
an include and an exclude list of interfaces, make it hang or refuse to start; one that is given in two places counts
once, silently. So ours is left out wherever the user has set the same thing, or its opposite, under any of its names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType

PARAMETER_OPTIONS = ("mca", "gmca", "omca", "prtemca", "pmixmca")
_VARIABLES = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_")
_CUSTOM_OPTIONS = "your custom MPI options set"
BIND_TO = "bind-to"
SSH_ARGUMENTS = ("plm_rsh_args", "plm_ssh_args")

_DAEMON_NETWORK = (
    "oob_tcp_if_include",
    "oob_tcp_if_exclude",
    "oob_tcp_include",
    "oob_tcp_exclude",
    "prte_if_include",
    "prte_if_exclude",
)
_ABORT = ("orte_abort_on_non_zero_status", "prte_abort_on_non_zero_status")
_AGENT = ("plm_rsh_agent", "pls_rsh_agent", "orte_rsh_agent", "plm_ssh_agent")
_NO_TREE = ("plm_rsh_no_tree_spawn", "plm_ssh_no_tree_spawn")
# Ours → every name, old ones and Open MPI 5's too, that sets the same or the opposite (ompi_info of 4.1.8 and 5.0.11).
_RIVALS = {
    "btl_tcp_if_include": ("btl_tcp_if_include", "btl_tcp_if_exclude"),
    "oob_tcp_if_include": _DAEMON_NETWORK,
    "prte_if_include": _DAEMON_NETWORK,
    BIND_TO: (
        BIND_TO,
        "hwloc_base_binding_policy",
        "hwloc_base_bind_to_core",
        "hwloc_base_bind_to_socket",
        "hwloc_default_binding_policy",
    ),
    "orte_abort_on_non_zero_status": _ABORT,
    "prte_abort_on_non_zero_status": _ABORT,
    "plm_rsh_agent": _AGENT,
    "plm_ssh_agent": _AGENT,
    "plm_rsh_no_tree_spawn": _NO_TREE,
    "plm_ssh_no_tree_spawn": _NO_TREE,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One of ours: `option` and the words behind it, for mpirun's command line."""

    option: str
    name: str
    value: str

    @property
    def words(self) -> tuple[str, ...]:
        return (self.option, self.value) if self.name == BIND_TO else (self.option, self.name, self.value)


@dataclass(frozen=True, slots=True)
class UserSetting:
    """One of the user's. `source` begins a sentence that goes on with the name: "the variable OMPI_MCA_… sets"."""

    value: str
    source: str


def file_settings(path: Path) -> dict[str, UserSetting]:
    """What one of Open MPI's files of parameters sets, by name; nothing where there is no such file."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if not line.lstrip().startswith("#"))
    return {name.strip(): UserSetting(value.strip(), f"{path} sets") for name, equals, value in pairs if equals}


def user_settings(
    options: Sequence[str], environ: Mapping[str, str], files: Mapping[str, UserSetting] = MappingProxyType({})
) -> dict[str, UserSetting]:
    """What the user sets for mpirun, by name: among the custom `options`, in mpirun's environment, in `files`."""
    settings = dict(files)
    for variable, value in environ.items():
        prefix = next((prefix for prefix in _VARIABLES if variable.startswith(prefix)), "")
        if prefix and value:
            settings[variable.removeprefix(prefix)] = UserSetting(value, f"the variable {variable} sets")
    for at, word in enumerate(options):
        plain, rest = word.lstrip("-"), options[at + 1 : at + 3]
        if plain == word:
            continue
        if plain in PARAMETER_OPTIONS and len(rest) == 2:
            settings[rest[0]] = UserSetting(rest[1], _CUSTOM_OPTIONS)
        elif plain.startswith(BIND_TO):  # Open MPI 4 knows --bind-to-core as well
            settings[BIND_TO] = UserSetting("", _CUSTOM_OPTIONS)
    return settings


def settings_that_stay(
    ours: Sequence[Setting], theirs: Mapping[str, UserSetting]
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Those of `ours` that fight none of `theirs`, and a line of the launch plan for each that is left out."""
    kept, reasons = [], []
    for setting in ours:
        if setting.name in SSH_ARGUMENTS:
            kept.append(_with_theirs(setting, theirs))
            continue
        rivals = [name for name in _RIVALS.get(setting.name, (setting.name,)) if name in theirs]
        if not rivals:
            kept.append(setting)
            continue
        rival = rivals[0]
        what = f"{setting.name} {setting.value}"
        reasons.append(f"{theirs[rival].source} {rival}, so mpirun does not get the plan's {what}")
    return tuple(kept), tuple(reasons)


def without_ssh_arguments(options: Sequence[str]) -> tuple[str, ...]:
    """The custom options, but for the arguments of ssh, which `settings_that_stay` has added to ours."""
    kept: list[str] = []
    rest = iter(options)
    for word in rest:
        if word.startswith("-") and word.lstrip("-") in PARAMETER_OPTIONS:
            parameter = [word, *islice(rest, 2)]
            kept += [] if len(parameter) == 3 and parameter[1] in SSH_ARGUMENTS else parameter
        else:
            kept.append(word)
    return tuple(kept)


def _with_theirs(setting: Setting, theirs: Mapping[str, UserSetting]) -> Setting:
    """Only ours name the job's key, so the user's arguments of ssh come behind them."""
    given = [theirs[name].value for name in SSH_ARGUMENTS if name in theirs]
    return replace(setting, value=" ".join([setting.value, *given]))
