"""How the hosts of a job ended, by the engine's state of their containers and by /opt/ml/output/failure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from docker.errors import NotFound
from docker.models.containers import Container

from berth.local import results

_KILLED = 137


@dataclass(frozen=True, slots=True)
class HostState:
    """How a host's container ended: its exit code, when (the engine's own timestamp), and whether memory ran out."""

    exit_code: int
    finished: str
    out_of_memory: bool = False


def first_failed(states: Mapping[str, HostState]) -> str | None:
    """The host that failed first: the others fail because of it. None if none failed."""
    failed = {name: state for name, state in states.items() if state.exit_code != 0}
    return min(failed, key=lambda name: failed[name].finished) if failed else None


def failure_text(root: Path, state: HostState) -> str:
    """Why a host failed: its /opt/ml/output/failure, and what only the engine knows; "" if it did not fail."""
    if state.exit_code == 0:
        return ""
    written = results.read_failure(root)
    reasons = [written] if written else []
    if state.out_of_memory:
        reasons.append("Out of memory: the kernel killed a process of this host: use smaller batches.")
    elif not reasons and state.exit_code == _KILLED:
        reasons.append(
            "The container was killed (SIGKILL, exit code 137) before it could say why: `docker events --since 30m "
            "--until 0s --filter event=kill` shows whether somebody ran `docker kill`, and `dmesg` whether the "
            "machine ran out of memory."
        )
    elif not reasons:
        reasons.append(f"The container ended with exit code {state.exit_code} and wrote no /opt/ml/output/failure.")
    return "\n".join(reasons)


def read_failures(scratch: Path, states: Mapping[str, HostState]) -> dict[str, str]:
    """Why each failed host failed; scratch: contains each host's /opt/ml."""
    return {name: reason for name in states if (reason := failure_text(scratch / name, states[name]))}


def read_state(container: Container) -> HostState:
    """How a container has ended, as of now."""
    try:
        container.reload()
    except NotFound:
        return HostState(_KILLED, "")  # somebody removed it
    state = container.attrs["State"]
    return HostState(state["ExitCode"], state["FinishedAt"], state["OOMKilled"])
