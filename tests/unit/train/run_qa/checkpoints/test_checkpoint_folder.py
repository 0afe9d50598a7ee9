"""What is a checkpoint, whatever a killed job, a full disk or a copy from S3 left, and which of them stay."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from berth.contract.errors import JobError
from berth.runtime.rank import Rank
from berth.train.run_qa import ranks
from berth.train.run_qa.checkpoints import checkpoint_folder, choice, manifest
from berth.train.run_qa.checkpoints.choice import Start
from berth.train.run_qa.checkpoints.manifest import MANIFEST, CheckpointManifest
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
    """A checkpoint, as rank 0 makes one of what Trainer wrote aside."""
    name = checkpoint_folder.new_name(step)
    files = checkpoint_folder.partial_folder(folder, name) / f"checkpoint-{step}"
    (files / "part").mkdir(parents=True)
    (files / "model.safetensors").write_bytes(b"weights")
    (files / "part/optimizer.pt").write_bytes(b"momenta")
    content = replace(WRITTEN, step=step, sequence=sequence, resumable=resumable, job=job)
    content = replace(content, files=manifest.hash_files(files))
    checkpoint_folder.complete(files, folder / name, content)
    return folder / name


def trainers_own(folder: Path, step: int, state: str = "{}") -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    save_file({"weights": torch.zeros(9)}, path / "model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt"):
        torch.save({"momenta": torch.zeros(9)}, path / name)
    (path / "trainer_state.json").write_text(state)
    return path


def start(folder: Path, resume: bool | str = True, job: str = "") -> tuple[Start, list[str]]:
    """What a job of one rank chooses, and says."""
    said: list[str] = []
    settings = TrainingSettings(Recipe(), {}, "gloo", 60, folder, resume)
    return choice.choose(settings, job, Rank(), said.append), said


def test_a_checkpoint_is_made_of_what_was_written_aside(tmp_path: Path) -> None:
    made = save(tmp_path, 20)
    assert [path.name for path in tmp_path.iterdir()] == [made.name]
    said = json.loads((made / MANIFEST).read_text())
    assert (said["step"], said["ranks"]) == (20, 2)
    assert {name: each["bytes"] for name, each in said["files"].items()} == {
        "model.safetensors": 7,
        "part/optimizer.pt": 7,
    }
    assert manifest.content_fault(made, manifest.read(made) or WRITTEN) == ""
    assert save(tmp_path, 20).name != made.name, "no name is written twice"
    assert checkpoint_folder.scan(tmp_path / "none").whole == []


def cut(name: str, to: int) -> Callable[[Path], None]:
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:to])


def without(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def turned(path: Path) -> None:
    (path / "model.safetensors").write_bytes(b"stehgiw")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (without(MANIFEST), f"{MANIFEST} is missing or cut off"),
        (cut(MANIFEST, 0), f"{MANIFEST} is missing or cut off"),
        (cut(MANIFEST, 200), f"{MANIFEST} is missing or cut off"),
        (cut("model.safetensors", 6), "model.safetensors has 6 of 7 bytes"),
        (cut("part/optimizer.pt", 0), "part/optimizer.pt has 0 of 7 bytes"),
        (without("part/optimizer.pt"), "part/optimizer.pt is missing"),
        (turned, "model.safetensors has changed since it was written"),
    ],
)
def test_what_s3_brought_back_half_is_never_taken(spoil: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    older, newest = save(tmp_path, 20, 1), save(tmp_path, 40, 2)
    spoil(newest)
    found, said = start(tmp_path)
    assert said == [
        f"ignoring {newest}: {reason}",
        f"going on from {older} (overwrite_output_dir true would start from the beginning)",
    ]
    assert found.chosen is not None
    assert found.chosen.path == older
    assert list(found.listing.incomplete) == [newest], "goes when the training begins"
    with pytest.raises(JobError, match=f"resume_from_checkpoint {newest} is not a whole checkpoint "):
        choice.read_named(str(newest))


@pytest.mark.parametrize("change", [lambda fields: fields.pop("accumulation"), lambda fields: fields.update(files=[])])
def test_what_another_version_of_the_kit_wrote_is_passed_over_and_stays(
    change: Callable[[dict[str, Any]], Any], tmp_path: Path
) -> None:
    made = save(tmp_path, 20)
    fields = json.loads((made / MANIFEST).read_text())
    change(fields)
    (made / MANIFEST).write_text(json.dumps(fields))
    found, said = start(tmp_path)
    assert said == [f"ignoring {made}: {MANIFEST} is from another version of berth"]
    assert (found.chosen, found.listing.incomplete) == (None, {})
    with pytest.raises(JobError, match=r"is not a whole checkpoint \(berth_checkpoint.json is from another version"):
        choice.read_named(str(made))


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
def test_that_trainers_own_has_no_optimizer_is_said(name: str, tmp_path: Path) -> None:
    own = trainers_own(tmp_path, 20)
    (own / name).unlink()
    found, said = start(tmp_path)
    assert found.chosen is not None
    assert said[1:] == [f"warning: {own} has no optimizer or no scheduler, so both start from the beginning"]


def test_what_else_lies_there_is_passed_over_and_only_ours_goes(tmp_path: Path) -> None:
    (tmp_path / ".partial-0a1b2c3d/checkpoint-60").mkdir(parents=True)
    weights_alone = save(tmp_path, 80, 9, resumable=False)
    torn = tmp_path / "checkpoint-90-0123abcd"
    torn.mkdir()
    cut_state = trainers_own(tmp_path, 100, "{")
    own = trainers_own(tmp_path, 10)
    (tmp_path / "checkpoint-70").mkdir()
    (tmp_path / "checkpoint-99-0123abce").write_text("a file")
    (tmp_path / "checkpoint-98-0123abce").symlink_to(own)
    (tmp_path / "notes").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    there = {path.name for path in tmp_path.iterdir()}
    found, said = start(tmp_path)
    assert found.chosen is not None
    assert found.chosen.path == own
    assert sorted(said[:-1]) == [
        f"ignoring {tmp_path / 'checkpoint-100'}: trainer_state.json is missing or cut off",
        f"ignoring {tmp_path / 'checkpoint-70'}: its weights are missing",
        f"ignoring {weights_alone}: it has only weights (save_only_model)",
        f"ignoring {torn}: {MANIFEST} is missing or cut off",
        f"ignoring {tmp_path / 'checkpoint-best'}: its name is neither berth's nor Trainer's",
    ]
    assert {path.name for path in tmp_path.iterdir()} == there, "nothing goes before the identities were compared"
    checkpoint_folder.remove([*found.listing.incomplete, *found.listing.partial])
    assert {path.name for path in tmp_path.iterdir()} == there - {".partial-0a1b2c3d", torn.name}
    assert cut_state.is_dir()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (without("model.safetensors"), "its weights are missing"),
        (without("trainer_state.json"), "trainer_state.json is missing or cut off"),
        (
            lambda path: (path / "checkpoint-is-incomplete.txt").touch(),
            "Trainer marked it as incomplete (checkpoint-is-incomplete.txt)",
        ),
    ],
)
def test_of_trainers_own_too_what_is_not_whole_is_passed_over(
    spoil: Callable[[Path], Any], reason: str, tmp_path: Path
) -> None:
    older, newest = trainers_own(tmp_path, 20), trainers_own(tmp_path, 40)
    spoil(newest)
    found, said = start(tmp_path)
    assert said[0] == f"ignoring {newest}: {reason}"
    assert found.chosen is not None
    assert found.chosen.path == older
    assert newest.is_dir(), "never deleted"


def test_the_newest_is_that_of_the_training_which_began_last(tmp_path: Path) -> None:
    """As after overwrite_output_dir, when more steps of an earlier training are still there."""
    save(tmp_path, 400, 1)
    newest = save(tmp_path, 20, 2)
    trainers_own(tmp_path, 500)
    found, _ = start(tmp_path)
    assert found.chosen is not None
    assert (found.chosen.path, found.listing.sequence) == (newest, 2)
    assert start(tmp_path, resume=False)[0].chosen is None
    found, said = start(tmp_path, str(tmp_path / "checkpoint-500"))
    assert said[-1].startswith(f"going on from {tmp_path}/checkpoint-500 (")


@pytest.mark.parametrize(("job", "taken"), [("mine", 40), ("another", None), ("", None)])
def test_a_job_that_starts_from_the_beginning_does_so_once(job: str, taken: int | None, tmp_path: Path) -> None:
    """SageMaker starts it again by its name after a spot interruption, with the same hyperparameters."""
    for step, sequence, wrote in ((60, 1, "first"), (20, 2, "mine"), (40, 3, "mine"), (80, 4, "")):
        save(tmp_path, step, sequence, job=wrote)
    found, said = start(tmp_path, resume=False, job=job)
    assert (found.chosen.step if found.chosen else None) == taken
    assert said == ([f"going on from {found.chosen.path} (this job wrote it)"] if found.chosen else [])
    assert start(tmp_path, job=job)[1][-1].endswith("(overwrite_output_dir true would start from the beginning)")


@pytest.mark.parametrize(
    ("elsewhere", "fault", "taken"),
    [((0, 1, 2), "", 2), ((0, 1), "", 1), ((), "", None), ((0, 1, 2), "model.safetensors is missing", 1)],
)
def test_the_newest_that_every_host_has_whole(
    elsewhere: tuple[int, ...], fault: str, taken: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three checkpoints here; what the other host has is faked, and the first that it reads has the `fault`."""
    saved = [save(tmp_path, 20 * (number + 1), number + 1) for number in range(3)]
    names = [saved[number].name for number in elsewhere]
    faults = iter([fault])

    def fake_gather(content: Any, rank: Rank) -> list[Any]:
        if isinstance(content, dict):
            return [content, {name: [0, 0] for name in names}]
        return [content, next(faults, "") if isinstance(content, str) else bool(names)]

    monkeypatch.setattr(ranks, "gather", fake_gather)
    found, said = start(tmp_path)
    assert (found.chosen.path if found.chosen else None) == (None if taken is None else saved[taken])
    assert found.listing.incomplete == {}, "here all are whole"
    if fault:
        assert said[0] == f"ignoring {saved[2]}: {fault}"
    if taken is None:
        assert said == [
            f"warning: no checkpoint in {tmp_path} is whole on every host: training starts from the beginning"
        ]


@pytest.mark.parametrize(
    ("limit", "best", "gone"),
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
def test_the_newest_and_the_best_stay(limit: int | None, best: str | None, gone: str) -> None:
    there = [Path(name) for name in "abcd"]
    found = checkpoint_folder.to_prune(there, limit, Path(best) if best else None)
    assert found == [Path(name) for name in gone]
    assert checkpoint_folder.to_prune([], limit, None) == []


def test_a_removal_that_is_cut_off_leaves_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = save(tmp_path, 20)
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
    checkpoint_folder.remove([made])
    assert (made / "model.safetensors").is_file()
    assert list(checkpoint_folder.scan(tmp_path).incomplete) == [made]


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
def test_a_checkpoint_of_another_training_is_refused_by_what_differs(
    changed: str, differs: str, tmp_path: Path
) -> None:
    made = save(tmp_path, 20)
    found, _ = start(tmp_path)
    choice.check_identity(found, IDENTITY)
    with pytest.raises(JobError) as error:
        choice.check_identity(found, IDENTITY | {changed: "other"})
    assert str(error.value).startswith(f"The checkpoint {made} was written with {differs}")
    assert "set overwrite_output_dir to true" in str(error.value)
