"""Tests which checkpoints are used and which are deleted, after kills, full disks and incomplete copies from S3, and
how write errors of the libraries are recognised.
"""

import json
import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from berth.contract.errors import JobError
from berth.runtime.rank import Rank
from berth.train.run_qa import ranks
from berth.train.run_qa.checkpoints import checkpoint_folder, choice, manifest
from berth.train.run_qa.checkpoints.choice import Start
from berth.train.run_qa.checkpoints.manifest import MANIFEST, CheckpointManifest
from berth.train.run_qa.checkpoints.saving import is_write_error, write_error_text
from berth.train.run_qa.recipe import Recipe, TrainingSettings

IDENTITY = {"model": "1", "weights": "4", "data": "3"}
WRITTEN = CheckpointManifest(
    step=20,
    sequence=1,
    ranks=2,
    per_device_batch=4,
    accumulation=1,
    resumable=True,
    identity=IDENTITY,
)


def save(folder: Path, step: int, sequence: int = 1, *, resumable: bool = True, job: str = "") -> Path:
    """A checkpoint, made like rank 0 makes one of Trainer's files."""
    suffix = secrets.token_hex(4)
    target = folder / f"checkpoint-{step}-{suffix}"
    files = folder / f"{checkpoint_folder.PARTIAL}{suffix}" / f"checkpoint-{step}"
    (files / "part").mkdir(parents=True)
    (files / "model.safetensors").write_bytes(b"weights")
    (files / "part/optimizer.pt").write_bytes(b"momenta")
    content = replace(WRITTEN, step=step, sequence=sequence, resumable=resumable, job=job)
    content = replace(content, files=manifest.hash_files(files))
    checkpoint_folder.complete(files, target, content)
    return target


def save_like_trainer(folder: Path, step: int, state: str = "{}") -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    save_file({"weights": torch.zeros(9)}, path / "model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt"):
        torch.save({"momenta": torch.zeros(9)}, path / name)
    (path / "trainer_state.json").write_text(state)
    return path


def choose(folder: Path, resume: bool | str = True, job: str = "") -> tuple[Start, list[str]]:
    """The choice of a job with one rank, and its log lines."""
    log: list[str] = []
    settings = TrainingSettings(Recipe(), {}, "gloo", 60, folder, resume)
    return choice.choose(settings, job, Rank(), log.append), log


def test_complete_makes_a_checkpoint_of_a_partial_folder(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 20)
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.name]
    fields = json.loads((checkpoint / MANIFEST).read_text())
    assert (fields["step"], fields["ranks"]) == (20, 2)
    assert {name: each["bytes"] for name, each in fields["files"].items()} == {
        "model.safetensors": 7,
        "part/optimizer.pt": 7,
    }
    written = manifest.read(checkpoint)
    assert manifest.content_fault(checkpoint, written) == ""
    assert checkpoint_folder.scan(tmp_path / "missing").whole == []


def truncate(name: str, to: int) -> Callable[[Path], None]:
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:to])


def delete(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def change_weights(path: Path) -> None:
    (path / "model.safetensors").write_bytes(b"stehgiw")


def mark(path: Path) -> None:
    (path / "checkpoint-is-incomplete.txt").touch()


@pytest.mark.parametrize(
    ("write", "damage", "reason"),
    [
        (save, delete(MANIFEST), f"{MANIFEST} is missing or cut off"),
        (save, truncate(MANIFEST, 0), f"{MANIFEST} is missing or cut off"),
        (save, truncate(MANIFEST, 200), f"{MANIFEST} is missing or cut off"),
        (save, truncate("model.safetensors", 6), "model.safetensors has 6 of 7 bytes"),
        (save, truncate("part/optimizer.pt", 0), "part/optimizer.pt has 0 of 7 bytes"),
        (save, delete("part/optimizer.pt"), "part/optimizer.pt is missing"),
        (save, change_weights, "model.safetensors has changed since it was written"),
        (save_like_trainer, delete("model.safetensors"), "its weights are missing"),
        (save_like_trainer, delete("trainer_state.json"), "trainer_state.json is missing or cut off"),
        (save_like_trainer, mark, "Trainer marked it as incomplete (checkpoint-is-incomplete.txt)"),
    ],
)
def test_incomplete_checkpoint_is_never_used(
    write: Callable[[Path, int], Path], damage: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    older, newest = write(tmp_path, 20), write(tmp_path, 40)
    damage(newest)
    start, log = choose(tmp_path)
    assert log == [
        f"ignoring {newest}: {reason}",
        f"going on from {older} (overwrite_output_dir true would start from the beginning)",
    ]
    assert start.chosen.path == older
    ours = [newest] if write is save else []
    assert list(start.listing.incomplete) == ours, "only ours are deleted when the training begins"
    with pytest.raises(JobError, match=f"resume_from_checkpoint {newest} is not a whole checkpoint "):
        choice.read_named(str(newest))


@pytest.mark.parametrize("change", [lambda fields: fields.pop("accumulation"), lambda fields: fields.update(files=[])])
def test_checkpoint_of_another_berth_version_is_ignored_and_kept(
    change: Callable[[dict[str, Any]], Any], tmp_path: Path
) -> None:
    checkpoint = save(tmp_path, 20)
    fields = json.loads((checkpoint / MANIFEST).read_text())
    change(fields)
    (checkpoint / MANIFEST).write_text(json.dumps(fields))
    start, log = choose(tmp_path)
    assert log == [f"ignoring {checkpoint}: {MANIFEST} is from another version of berth"]
    assert (start.chosen, start.listing.incomplete) == (None, {})
    with pytest.raises(JobError, match=r"is not a whole checkpoint \(berth_checkpoint.json is from another version"):
        choice.read_named(str(checkpoint))


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
def test_missing_optimizer_of_trainers_checkpoint_is_a_warning(name: str, tmp_path: Path) -> None:
    trainers = save_like_trainer(tmp_path, 20)
    (trainers / name).unlink()
    start, log = choose(tmp_path)
    assert start.chosen is not None
    assert log[1:] == [f"warning: {trainers} has no optimizer or no scheduler, so both start from the beginning"]


def test_other_files_are_ignored_and_only_our_incomplete_ones_deleted(tmp_path: Path) -> None:
    (tmp_path / ".partial-0a1b2c3d/checkpoint-60").mkdir(parents=True)
    weights_alone = save(tmp_path, 80, 9, resumable=False)
    incomplete = tmp_path / "checkpoint-90-0123abcd"
    incomplete.mkdir()
    cut_off = save_like_trainer(tmp_path, 100, "{")
    trainers = save_like_trainer(tmp_path, 10)
    (tmp_path / "checkpoint-70").mkdir()
    (tmp_path / "checkpoint-99-0123abce").write_text("a file")
    (tmp_path / "checkpoint-98-0123abce").symlink_to(trainers)
    (tmp_path / "notes").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    names = {path.name for path in tmp_path.iterdir()}
    start, log = choose(tmp_path)
    assert start.chosen.path == trainers
    assert sorted(log[:-1]) == [
        f"ignoring {tmp_path / 'checkpoint-100'}: trainer_state.json is missing or cut off",
        f"ignoring {tmp_path / 'checkpoint-70'}: its weights are missing",
        f"ignoring {weights_alone}: it has only weights (save_only_model)",
        f"ignoring {incomplete}: {MANIFEST} is missing or cut off",
        f"ignoring {tmp_path / 'checkpoint-best'}: its name is neither berth's nor Trainer's",
    ]
    assert {path.name for path in tmp_path.iterdir()} == names, "nothing is deleted before the identities are compared"
    checkpoint_folder.remove([*start.listing.incomplete, *start.listing.partial])
    assert {path.name for path in tmp_path.iterdir()} == names - {".partial-0a1b2c3d", incomplete.name}
    assert cut_off.is_dir()


def test_newest_checkpoint_has_the_highest_sequence(tmp_path: Path) -> None:
    """After overwrite_output_dir the folder may still have checkpoints of an earlier training with more steps."""
    save(tmp_path, 400, 1)
    newest = save(tmp_path, 20, 2)
    save_like_trainer(tmp_path, 500)
    start, _ = choose(tmp_path)
    assert (start.chosen.path, start.listing.sequence) == (newest, 2)
    assert choose(tmp_path, resume=False)[0].chosen is None
    start, log = choose(tmp_path, str(tmp_path / "checkpoint-500"))
    assert log[-1].startswith(f"going on from {tmp_path}/checkpoint-500 (")


@pytest.mark.parametrize(("job", "taken"), [("mine", 40), ("another", None), ("", None)])
def test_overwrite_output_dir_starts_over_only_once_per_job(job: str, taken: int | None, tmp_path: Path) -> None:
    """After a spot interruption SageMaker starts the job again with the same name and hyperparameters."""
    for step, sequence, wrote in ((60, 1, "first"), (20, 2, "mine"), (40, 3, "mine"), (80, 4, "")):
        save(tmp_path, step, sequence, job=wrote)
    start, log = choose(tmp_path, resume=False, job=job)
    assert (start.chosen.step if start.chosen else None) == taken
    assert log == ([f"going on from {start.chosen.path} (this job wrote it)"] if start.chosen else [])
    assert choose(tmp_path, job=job)[1][-1].endswith("(overwrite_output_dir true would start from the beginning)")


@pytest.mark.parametrize(
    ("elsewhere", "fault", "taken"),
    [((0, 1, 2), "", 2), ((0, 1), "", 1), ((), "", None), ((0, 1, 2), "model.safetensors is missing", 1)],
)
def test_chosen_checkpoint_is_whole_on_every_host(
    elsewhere: tuple[int, ...], fault: str, taken: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This host has three checkpoints. The other host's answers are faked: its newest checkpoint has the `fault`."""
    saved = [save(tmp_path, 20 * (number + 1), number + 1) for number in range(3)]
    names = [saved[number].name for number in elsewhere]
    faults = iter([fault])

    def fake_gather(content: Any, rank: Rank) -> list[Any]:
        if isinstance(content, dict):
            return [content, {name: [0, 0] for name in names}]
        return [content, next(faults, "") if isinstance(content, str) else bool(names)]

    monkeypatch.setattr(ranks, "gather", fake_gather)
    start, log = choose(tmp_path)
    assert (start.chosen.path if start.chosen else None) == (None if taken is None else saved[taken])
    assert start.listing.incomplete == {}, "all are whole on this host"
    if fault:
        assert log[0] == f"ignoring {saved[2]}: {fault}"
    if taken is None:
        assert log == [
            f"warning: no checkpoint in {tmp_path} is whole on every host: training starts from the beginning"
        ]


@pytest.mark.parametrize(
    ("limit", "best", "removed"),
    [
        (None, None, ""),
        (0, None, ""),
        (5, None, ""),
        (2, None, "ab"),
        (1, None, "abc"),
        (2, "a", "bc"),
        (1, "a", "bc"),
        (1, "d", "abc"),
        (2, "z", "ab"),
    ],
)
def test_prune_keeps_the_newest_and_the_best(limit: int | None, best: str | None, removed: str) -> None:
    checkpoints = [Path(name) for name in "abcd"]
    to_delete = checkpoint_folder.to_prune(checkpoints, limit, Path(best) if best else None)
    assert to_delete == [Path(name) for name in removed]
    assert checkpoint_folder.to_prune([], limit, None) == []


def test_interrupted_removal_leaves_no_usable_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = save(tmp_path, 20)
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
    checkpoint_folder.remove([checkpoint])
    assert (checkpoint / "model.safetensors").is_file()
    assert list(checkpoint_folder.scan(tmp_path).incomplete) == [checkpoint]


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ("model", "another model than this job's: pass the model"),
        ("weights", "a model of other weights than this job's: pass the model"),
        (
            "data",
            "other training data, or another tokenizer, max_seq_length, doc_stride, seed or train_sampling",
        ),
    ],
)
def test_identity_check_names_the_difference(changed: str, differs: str, tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 20)
    start, _ = choose(tmp_path)
    choice.check_identity(start, IDENTITY)
    with pytest.raises(JobError) as error:
        choice.check_identity(start, IDENTITY | {changed: "other"})
    assert str(error.value).startswith(f"The checkpoint {checkpoint} was written with {differs}")
    assert "set overwrite_output_dir to true" in str(error.value)


@pytest.mark.parametrize(
    ("fail", "why"),
    [
        (lambda: Tokenizer(models.BPE()).save("/dev/full"), "No space left on device"),
        (lambda: save_file({"weights": torch.zeros(9)}, "/proc/none/weights"), "Error while serializing: I/O error: "),
        (lambda: Path("/proc/none").mkdir(), "No such file or directory"),
    ],
    ids=["tokenizer", "weights", "folder"],
)
def test_write_errors_of_all_libraries_are_recognised(fail: Callable[[], Any], why: str) -> None:
    with pytest.raises(Exception, match="o") as raised:  # tokenizers raises a bare Exception
        fail()
    assert is_write_error(raised.value)
    assert write_error_text(raised.value).startswith(why)
    assert "os error" not in write_error_text(raised.value)


def test_other_errors_are_not_write_errors() -> None:
    assert not any(is_write_error(each) for each in (KeyError("name"), ValueError("(os error 2)"), Exception("no")))
