"""Killed jobs: the verdict, and a short run with real ranks."""

import argparse
import hashlib
import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from bench import kills
from bench.jobs import saved_checkpoints, small
from bench.jobs.killing import CompletedKill, Kill
from bench.jobs.verdict import KilledJob, Start, faults_of, shortfall

KILL = Kill("rank", signal.SIGKILL, "training", at=0.5, steps=2, which=0.0)


def write_checkpoint(folder: Path, **contents: str) -> Path:
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_text(content)
    files = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content.encode()).hexdigest()}
        for name, content in contents.items()
    }
    (folder / saved_checkpoints.MANIFEST).write_text(json.dumps({"files": files}))
    return folder


def test_checkpoint_is_complete_if_manifest_and_files_agree(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint-12-aa", weights="12")
    write_checkpoint(tmp_path / "checkpoint-9-aa", weights="9")
    (write_checkpoint(tmp_path / "checkpoint-15-aa", weights="15") / "weights").write_text("1")
    (write_checkpoint(tmp_path / "checkpoint-18-aa", weights="18") / "weights").write_text("81")
    (write_checkpoint(tmp_path / "checkpoint-21-aa", weights="21") / "weights").unlink()
    (write_checkpoint(tmp_path / "checkpoint-24-aa", weights="24") / saved_checkpoints.MANIFEST).write_text('{"fil')
    assert saved_checkpoints.whole(tmp_path) == ["checkpoint-9-aa", "checkpoint-12-aa"]
    assert saved_checkpoints.find_damage(tmp_path / "checkpoint-15-aa") == "weights has 1 bytes, not 2"
    assert (
        saved_checkpoints.find_damage(tmp_path / "checkpoint-18-aa")
        == "weights has another sha256 than in berth_checkpoint.json"
    )


def start(whole: tuple[str, ...], resumed_from: str, at: int | None = None, codes: tuple[int, ...] = (1,)) -> Start:
    log = f"going on from /opt/ml/checkpoints/{resumed_from} (…)\n" if resumed_from else ""
    completed_kill = None if at is None else CompletedKill(at, saving=False)
    return Start(whole, f"{log}step {at or 30} of 30  loss: 1.0", codes, None if at is None else KILL, completed_kill)


FIRST_START = start((), "", 7)
COMPLETE = ("checkpoint-3-aa", "checkpoint-6-aa")
ENDS = start(COMPLETE, "checkpoint-6-aa", codes=(0,))


@pytest.mark.parametrize(
    ("starts", "difference", "faults"),
    [
        ([FIRST_START, ENDS], 0.0, []),
        ([start((), "", 6), start(COMPLETE[:1], "checkpoint-3-aa", codes=(0,))], 1e-5, []),
        ([FIRST_START, ENDS], 2e-4, ["its weights differ by 2.0e-04"]),
        ([FIRST_START, start(COMPLETE, "checkpoint-6-aa")], None, ["the last start ended with (1,)"]),
        (
            [FIRST_START, start(COMPLETE[:1], "checkpoint-6-aa", codes=(0,))],
            0.0,
            [
                "start 2 resumed from checkpoint-6-aa, which is incomplete",
                "start 2 found no checkpoint of step 6 or later after SIGKILL of rank while training",
            ],
        ),
        (
            [FIRST_START, start(COMPLETE, "checkpoint-3-aa", codes=(0,))],
            0.0,
            ["start 2 ignored checkpoint-6-aa and resumed from checkpoint-3-aa"],
        ),
        (
            [FIRST_START, start(COMPLETE, "", codes=(0,))],
            0.0,
            ["start 2 ignored checkpoint-6-aa and resumed from step 0"],
        ),
    ],
)
def test_faults_of_job(starts: list[Start], difference: float | None, faults: list[str]) -> None:
    assert faults_of(KilledJob(1, starts, difference), save_every=3) == faults


def test_after_sigterm_no_step_may_be_lost() -> None:
    sigterm = replace(KILL, number=signal.SIGTERM)
    stopped = replace(start((), "", 8, codes=(143, 143)), kill=sigterm)
    (fault,) = faults_of(KilledJob(1, [stopped, ENDS], 0.0), save_every=3)
    assert fault == "start 2 found no checkpoint of step 8 or later after SIGTERM of rank while training"
    killed = replace(stopped, codes=(143, 1))
    assert faults_of(KilledJob(1, [killed, ENDS], 0.0), save_every=3) == []


def test_shortfall_reports_too_few_kills_in_total_or_during_checkpoints() -> None:
    starts = [
        Start((), "", (137,), KILL, CompletedKill(3, saving=saving)) for saving in (True, False, False, False, False)
    ]
    assert shortfall([KilledJob(1, starts), KilledJob(2, starts)], 10) == ""
    assert shortfall([KilledJob(1, starts)], 10).startswith("Too few: 5 kills of 10, 1 of them between a checkpoint's")
    assert shortfall([KilledJob(1, starts[1:] + starts[1:])], 5).endswith("manifest; 1 are needed.")


@pytest.mark.nightly
def test_six_kills_of_real_ranks_lose_nothing(tmp_path: Path) -> None:
    options = argparse.Namespace(kills=6, hosts=[1], seed=3, minutes=10.0, ranks_alone=True)
    jobs = kills.run(options, tmp_path)
    completed = [completed_kill for job in jobs for _, completed_kill in job.kills]
    assert len(completed) == 6
    assert any(completed_kill.saving for completed_kill in completed), "no kill during the writing of a checkpoint"
    assert [faults_of(job, small.SAVE_EVERY) for job in jobs] == [[] for _ in jobs]
