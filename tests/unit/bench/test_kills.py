"""Jobs that are killed: the choice of kills, what S3 brings back, the verdict, and a short run on real ranks."""

import argparse
import hashlib
import json
import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from bench import kills
from bench.jobs import kept, small
from bench.jobs.killing import Kill, Struck, choose
from bench.jobs.verdict import KilledJob, Start, faults_of, render, shortfall, steps_lost

KILL = Kill("rank", signal.SIGKILL, "training", at=0.5, steps=2, which=0.0)


def test_kills_are_chosen_by_a_seed_and_two_of_five_are_meant_for_the_writing_of_checkpoints() -> None:
    victims = ("rank", "entry", "container")
    chosen = choose(100, victims, random.Random(1))
    assert chosen == choose(100, victims, random.Random(1))
    assert chosen != choose(100, victims, random.Random(2))
    assert [sum(each.moment == moment for each in chosen) for moment in ("starting", "training", "saving")] == [
        20,
        40,
        40,
    ]
    assert {each.victim for each in chosen} == set(victims)
    saving = [each for each in chosen if each.moment == "saving"]
    assert sum(each.number == signal.SIGKILL for each in saving) > 25
    assert {each.number for each in chosen} == {signal.SIGKILL, signal.SIGTERM}


def write_checkpoint(folder: Path, **contents: str) -> Path:
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_text(content)
    files = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content.encode()).hexdigest()}
        for name, content in contents.items()
    }
    (folder / kept.MANIFEST).write_text(json.dumps({"files": files}))
    return folder


def test_a_checkpoint_is_whole_when_its_manifest_and_its_files_agree(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint-12-aa", weights="12")
    write_checkpoint(tmp_path / "checkpoint-9-aa", weights="9")
    (write_checkpoint(tmp_path / "checkpoint-15-aa", weights="15") / "weights").write_text("1")
    (write_checkpoint(tmp_path / "checkpoint-18-aa", weights="18") / "weights").write_text("81")
    (write_checkpoint(tmp_path / "checkpoint-21-aa", weights="21") / "weights").unlink()
    (write_checkpoint(tmp_path / "checkpoint-24-aa", weights="24") / kept.MANIFEST).write_text('{"fil')
    assert kept.whole(tmp_path) == ["checkpoint-9-aa", "checkpoint-12-aa"]
    assert kept.torn(tmp_path / "checkpoint-15-aa") == "weights has 1 bytes, not 2"
    assert kept.torn(tmp_path / "checkpoint-18-aa") == "weights has another sha256 than berth_checkpoint.json says"


def test_what_is_being_written_is_seen_from_its_first_file_to_its_manifest(tmp_path: Path) -> None:
    known = {write_checkpoint(tmp_path / "checkpoint-3-aa", weights="3").name}
    new = tmp_path / ".partial-6"
    inner = new / "checkpoint-6"
    inner.mkdir(parents=True)
    (inner / "weights").touch()
    assert kept.being_written(tmp_path, known) == ""
    (inner / "weights").write_text("6")
    assert kept.being_written(tmp_path, known) == new.name
    assert kept.being_written(tmp_path, {*known, new.name}) == "", "what an earlier start left is not being written"
    (inner / kept.MANIFEST).touch()
    assert kept.being_written(tmp_path, known) == "", "between the manifest and the new name nothing can be torn"
    inner.rename(tmp_path / "checkpoint-6-aa")
    assert kept.being_written(tmp_path, known) == ""


def test_s3_brings_back_what_was_deleted_and_half_of_what_was_being_written(tmp_path: Path) -> None:
    host, worker = tmp_path / "algo-1", tmp_path / "algo-2"
    worker.mkdir()
    first = write_checkpoint(host / "checkpoint-3-aa", weights="3")
    bucket = kept.Bucket(tmp_path / "bucket", random.Random(3))
    bucket.upload([host, worker])
    for file in first.iterdir():
        file.unlink()
    first.rmdir()
    write_checkpoint(host / "checkpoint-6-aa", weights="6")
    (host / ".partial-9").mkdir()
    for number in range(40):
        (host / ".partial-9" / f"file-{number}").write_text("0123456789")
    bucket.upload([host, worker])
    bucket.restore([worker])
    assert kept.whole(worker) == ["checkpoint-3-aa", "checkpoint-6-aa"]
    sizes = [path.stat().st_size for path in (worker / ".partial-9").iterdir()]
    assert set(sizes) == {5, 10}
    assert len(sizes) < 40
    assert bucket.spoiled == 1


def start(whole: tuple[str, ...], said: str, at: int | None = None, codes: tuple[int, ...] = (1,)) -> Start:
    log = f"going on from /opt/ml/checkpoints/{said} (…)\n" if said else ""
    struck = None if at is None else Struck(at, saving=False)
    return Start(whole, f"{log}step {at or 30} of 30  loss: 1.0", codes, None if at is None else KILL, struck)


NONE = start((), "", 7)
WHOLE = ("checkpoint-3-aa", "checkpoint-6-aa")
ENDS = start(WHOLE, "checkpoint-6-aa", codes=(0,))


@pytest.mark.parametrize(
    ("starts", "difference", "faults"),
    [
        ([NONE, ENDS], 0.0, []),
        ([start((), "", 6), start(WHOLE[:1], "checkpoint-3-aa", codes=(0,))], 1e-5, []),
        ([NONE, ENDS], 2e-4, ["its weights differ by 2.0e-04"]),
        ([NONE, start(WHOLE, "checkpoint-6-aa")], None, ["the last start ended with (1,)"]),
        (
            [NONE, start(WHOLE[:1], "checkpoint-6-aa", codes=(0,))],
            0.0,
            [
                "start 2 went on from checkpoint-6-aa, which is not whole",
                "start 2 found no checkpoint of step 6 or later after SIGKILL of rank while training",
            ],
        ),
        (
            [NONE, start(WHOLE, "checkpoint-3-aa", codes=(0,))],
            0.0,
            ["start 2 passed over checkpoint-6-aa and went on from checkpoint-3-aa"],
        ),
        ([NONE, start(WHOLE, "", codes=(0,))], 0.0, ["start 2 passed over checkpoint-6-aa and went on from nothing"]),
    ],
)
def test_what_a_job_lost(starts: list[Start], difference: float | None, faults: list[str]) -> None:
    assert faults_of(KilledJob(1, starts, difference), save_every=3) == faults


def test_who_is_asked_to_stop_loses_no_step() -> None:
    asked = replace(KILL, number=signal.SIGTERM)
    stopped = replace(start((), "", 8, codes=(143, 143)), kill=asked)
    (fault,) = faults_of(KilledJob(1, [stopped, ENDS], 0.0), save_every=3)
    assert fault == "start 2 found no checkpoint of step 8 or later after SIGTERM of rank while training"
    killed = replace(stopped, codes=(143, 1))
    assert faults_of(KilledJob(1, [killed, ENDS], 0.0), save_every=3) == []


def test_the_page_counts_kills_by_kind_and_what_they_cost() -> None:
    job = KilledJob(2, [NONE, start(WHOLE, "checkpoint-6-aa", 11), ENDS], 1e-6)
    assert steps_lost(job) == [1, 5]
    early = Start(WHOLE, "", (137,), KILL, Struck(0, saving=False))
    assert steps_lost(KilledJob(1, [NONE, early, early, ENDS])) == [1]
    page = render("Jobs", ["how"], [job], save_every=3)
    assert "| 2 | rank | SIGKILL | 2 | 0 |" in page
    assert "| jobs, and their starts | 1, 3 |" in page
    assert (
        "- job 1 on 2 hosts: start 3 found no checkpoint of step 9 or later after SIGKILL of rank while training"
        in page
    )
    assert "No fault" not in page
    assert "No fault" in render("Jobs", ["how"], [KilledJob(2, [NONE, ENDS], 0.0)], save_every=3)


def test_too_few_kills_and_too_few_in_the_writing_of_a_checkpoint_are_said() -> None:
    kills = [Start((), "", (137,), KILL, Struck(3, saving=saving)) for saving in (True, False, False, False, False)]
    assert shortfall([KilledJob(1, kills), KilledJob(2, kills)], 10) == ""
    assert shortfall([KilledJob(1, kills)], 10).startswith("Too few: 5 kills of 10, 1 of them between a checkpoint's")
    assert shortfall([KilledJob(1, kills[1:] + kills[1:])], 5).endswith("manifest, where 1 are wanted.")


@pytest.mark.nightly
def test_six_kills_of_real_ranks_lose_nothing(tmp_path: Path) -> None:
    asked = argparse.Namespace(kills=6, hosts=[1], seed=3, minutes=10.0, ranks_alone=True)
    jobs = kills.run(asked, tmp_path)
    done = [struck for job in jobs for _, struck in job.kills]
    assert len(done) == 6
    assert any(struck.saving for struck in done), "one between a checkpoint's first byte and its manifest"
    assert [faults_of(job, small.SAVE_EVERY) for job in jobs] == [[] for _ in jobs]
