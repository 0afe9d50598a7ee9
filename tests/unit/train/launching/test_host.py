"""A leader's checks of its workers, and the notes in the last line of the log."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from berth.contract.errors import JobError
from berth.runtime.hints.program import ProgramContext
from berth.runtime.software import kit_version
from berth.train.failures.ends import PythonEnd
from berth.train.failures.raised import Frame, Raised
from berth.train.hosts.rendezvous import Introduction
from berth.train.launching import host
from berth.train.planning.plan import Plan
from tests.unit.train.planning.plans import GPU8, job, plan_of


@pytest.mark.parametrize(
    ("worker", "difference"),
    [
        ({}, ""),
        ({"ranks": 4}, "b would run 4 ranks but a 8"),
        ({"version": "0", "backend": ""}, "b has version 0 of the kit"),
        ({"backend": "nccl"}, "b would use the backend nccl but a smddp; use instances of one kind"),
    ],
)
def test_check_alike_names_the_difference(worker: dict[str, Any], difference: str) -> None:
    introduction = Introduction("b", **{"ranks": 8, "version": kit_version(), "backend": "smddp", **worker})
    with pytest.raises(JobError, match=difference) if difference else contextlib.nullcontext():
        host.check_alike(8, "smddp", {"b": introduction}, "a")


def plan(program: str | None, gpus: int, distribution: str = "") -> Plan:
    environ = {"BERTH_DISTRIBUTION": distribution, "BERTH_PROCESSES_PER_HOST": "2"}
    return plan_of(job(program=program), replace(GPU8, gpus=gpus), environ)


@pytest.mark.parametrize(
    ("launch_plan", "ranks", "ended_well", "note"),
    [
        (plan("train.py", 0, "mpi"), [[], []], True, "2 ranks ran, but no process group of 2 was formed"),
        (plan("train.py", 0, "mpi"), [["process group of 2"]] * 2, True, ""),
        (plan("train.py", 0, "mpi"), [], True, ""),
        (plan(None, 0), [[], []], True, ""),
        (plan("train.py", 0), [[]], True, ""),
        (plan("train.py", 8), [[]], True, "7 of 8 GPUs may stay idle"),
        (plan("train.py", 8), [["process group of 8"]], True, ""),
        (plan("train.py", 8), [], True, ""),
        (plan("train.py", 0, "mpi"), [[], []], False, ""),
        (plan("train.py", 8), [[]], False, "7 of 8 GPUs may stay idle"),
    ],
    ids=[
        "ranks without a group",
        "ranks in one group",
        "no rank started",
        "run_qa checks its own group",
        "one program without GPUs",
        "one program with idle GPUs",
        "one program that uses all GPUs",
        "no program started",
        "ranks without a group that failed",
        "one program with idle GPUs that failed",
    ],
)
def test_plan_notes(launch_plan: Plan, ranks: list[list[str]], ended_well: bool, note: str) -> None:
    notes = host.plan_notes(launch_plan, ranks, ended_well=ended_well)
    assert [line[: len(note)] for line in notes] == ([note] if note else [])


def test_empty_model_note_names_failed_child() -> None:
    raised = Raised("ValueError", "label 7 is out of range", (Frame("/opt/ml/code/work.py", 7, ""),))
    children = [PythonEnd(pid, (1,), pid, "raised", 1, raised=raised) for pid in (7, 8)]
    context = ProgramContext(Path("/opt/ml/code"))
    assert host.empty_model_note(children, context).endswith(
        "; a process that the program started failed: ValueError: label 7 is out of range (raised at work.py:7)"
    )
    assert host.empty_model_note([], context) == "/opt/ml/model is empty, so the job leaves no model"
