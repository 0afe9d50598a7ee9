"""Makes the launch table of train/README.md from recorded requests of the SDKs and the launch plans for them.

`python -m tests.unit.train.launch_table` writes it; tests/unit/train/test_requests.py checks that it is up to date.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from berth.images.pins import pins
from berth.train.planning.plan import Plan
from tests.unit.train.recorded_jobs import HARDWARE, Request, planned, requests

PAGE = pins.ROOT / "train" / "README.md"
BEGIN = "<!-- launch table: made by python -m tests.unit.train.launch_table -->\n"
END = "<!-- end of the launch table -->"
_HEAD = (
    "| what you write | what reaches the image | hosts without a GPU | hosts with 8 GPUs | because |\n"
    "|---|---|---|---|---|\n"
)
# The SDK's own keys that do not affect the launch.
_IGNORED = tuple(
    f"sagemaker_{name}"
    for name in ("container_log_level", "estimator", "instance_type", "job_name", "region", "submit_directory")
)
_LAUNCH_KEYS = ("processes_per_host", "mp_parameters")
_VARIABLES = ("BERTH_", "SAGEMAKER_PROGRAM")


def outcome(plan: Plan | str) -> str:
    """What runs and how often, or `refused`."""
    if isinstance(plan, str):
        return "refused"
    program = f"`{plan.name}`" if plan.name else "run_qa"
    if plan.kind == "process":
        return f"{program} once{_on_each(len(plan.hosts))}"
    return f"{program} by mpirun, {_ranks(plan.ranks_per_host)}{_on_each(len(plan.hosts))}"


def because(cpu: Plan | str, gpus: Plan | str) -> str:
    """The error, otherwise the first reason of the plan on GPUs, without its consequence."""
    for plan in (gpus, cpu):
        if isinstance(plan, str):
            return plan
    assert isinstance(gpus, Plan)
    return gpus.reasons[0].split(": 2 independent trainings")[0]


def row(request: Request, root: Path) -> tuple[str, ...]:
    """The cells of a row except the first."""
    if request.replaces_the_entry:
        return replaced(request)
    cpu, gpus = (planned(request, hardware, root) for hardware in HARDWARE.values())
    return launch_keys(request), outcome(cpu), outcome(gpus), because(cpu, gpus)


def replaced(request: Request) -> tuple[str, ...]:
    """The cells for a request that replaces process 1: by a user's command, or by SDK v3's driver."""
    hosts = _on_each(len(request.hosts))
    driver = request.fields.get("Driver")
    if driver is None:
        return "a command of yours", *[f"your command once{hosts}"] * 2, "it takes the place of the image's entry"
    why = "SDK v3's driver takes the place of the image's entry"
    distributed = driver["distributed.json"]
    if "process_count_per_node" not in distributed:
        program = "your script" if driver["runs"] else "your command"
        return "a command of SDK v3's", *[f"{program} once{hosts}"] * 2, why
    launcher = "torchrun" if driver["runs"] == ["torchrun_driver.py"] else "mpirun"
    # Like the driver's get_process_count (container_drivers/common/utils.py): the requested number, or the GPUs, or 1.
    counts = [distributed["process_count_per_node"] or otherwise for otherwise in (1, 8)]
    return "a command of SDK v3's", *[f"your script by {launcher}, {_ranks(each)}{hosts}" for each in counts], why


def _ranks(count: int) -> str:
    return f"{count} rank{'s' if count > 1 else ''}"


def _on_each(hosts: int) -> str:
    return f" on each of {hosts} hosts" if hosts > 1 else ""


def launch_keys(request: Request) -> str:
    """The hyperparameters and variables of a request that affect the launch."""
    keys = [
        f"`{name}: {_plain(text)}`"
        for name, text in sorted(request.hyperparameters.items())
        if (name in _LAUNCH_KEYS or (name.startswith("sagemaker_") and not name.startswith(_IGNORED))) and _plain(text)
    ]
    keys += [f"`{name}={value}`" for name, value in request.environment.items() if name.startswith(_VARIABLES)]
    return ", ".join(keys) or "nothing"


def _plain(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def first_cell(names: Sequence[str]) -> str:
    """What users write to get the same row, abbreviated."""
    ways_by_estimator: dict[str, list[str]] = {}
    for name in names:
        estimator, _, way = name.partition(", ")
        ways_by_estimator.setdefault(estimator, []).append(way)
    estimators_by_ways: dict[tuple[str, ...], list[str]] = {}
    for estimator, ways in ways_by_estimator.items():
        estimators_by_ways.setdefault(tuple(ways), []).append(estimator)
    return "; ".join(
        f"{' and '.join(estimators)}" + (f": {'; '.join(way or 'alone' for way in ways)}" if ways != ("",) else "")
        for ways, estimators in estimators_by_ways.items()
    )


def table() -> str:
    """The whole table. Requests with the same cells share a row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    with tempfile.TemporaryDirectory() as root:
        for request in requests().values():
            rows.setdefault(row(request, Path(root)), []).append(request.name)
    lines = [(first_cell(names), *cells) for cells, names in rows.items()]
    return _HEAD + "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def page_with(text: str) -> str:
    """The page with this table between its markers."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + text + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page_with(table()))
