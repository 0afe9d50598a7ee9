"""Checkpoints of pipelines with real ranks: 2 partitions, and 2 replicas of them, which also load the former's.

The same launches train in half precision. Without processes: files after a process died, and loss scales.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import rank_jobs
import torch

from berth.smdistributed.modelparallel.torch import files
from berth.smdistributed.modelparallel.torch.loss_scale import LossScale, loss_scale

BODY = """
import logging
logging.disable(logging.WARNING)
smp.init({"partitions": 2})
import pipeline_checkpoints, pipeline_precision
results = pipeline_checkpoints.all_of(RESULTS)
results["precision"] = pipeline_precision.all_of()
if "OTHER" in os.environ:
    other = os.environ["OTHER"]
    expected = torch.load(f"{other}/{smp.pp_rank()}.pt", weights_only=False)["expected"]
    results["more_replicas"] = pipeline_checkpoints.more_replicas(other, expected)
result(results)
"""


def launch(size: int, folder: Path, **more: str) -> list[Any]:
    return rank_jobs.run(BODY, size, folder, imports=["pipeline_models"], **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the checkpoints of 2 ranks."""
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two_ranks(folder: Path) -> list[Any]:
    """The results of each of 2 ranks."""
    return launch(2, folder)


@pytest.fixture(scope="module")
def four_ranks(two_ranks: list[Any], folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The results of each of 4 ranks, which also load the checkpoints of 2 ranks."""
    return launch(4, tmp_path_factory.mktemp("four"), OTHER=str(folder))


@pytest.fixture(params=["two_ranks", pytest.param("four_ranks", marks=pytest.mark.nightly)])
def ranks(request: pytest.FixtureRequest) -> list[Any]:
    return list(request.getfixturevalue(request.param))


def largest_difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    assert list(one) == list(other)
    return max(float((each - other[name]).abs().max()) for name, each in one.items())


@pytest.mark.slow
def test_resumed_job_equals_uninterrupted_job_to_the_last_bit(ranks: list[Any]) -> None:
    """Losses, parameters and momentum after 3 + 3 steps, for every way to save, loaded before or after a first step."""
    for rank in ranks:
        assert len(rank["resumes"]) == (6 if len(ranks) == 2 else 2)
        assert [way for way, equal in rank["resumes"].items() if equal != [True, True]] == []


@pytest.mark.slow
def test_dropout_resumes_its_random_state(ranks: list[Any]) -> None:
    assert [rank["dropout"] for rank in ranks] == [True] * len(ranks)


@pytest.mark.nightly
def test_more_replicas_resume_to_the_last_bit(four_ranks: list[Any]) -> None:
    for rank in four_ranks:
        assert len(rank["more_replicas"]) == 4
        assert [way for way, equal in rank["more_replicas"].items() if equal != [True, True]] == []


@pytest.mark.slow
def test_checkpoint_saved_directly_after_resuming_is_complete(ranks: list[Any]) -> None:
    assert [rank["again"] for rank in ranks] == [[True] * 4] * len(ranks)


@pytest.mark.slow
def test_full_checkpoint_is_the_state_dict_of_one_process(ranks: list[Any]) -> None:
    for rank in ranks:
        assert rank["file"]
        for name in ("parameters", "momentum"):
            assert largest_difference(rank["saved"][name], rank["one process"][name]) < 2e-6


@pytest.mark.slow
def test_full_checkpoint_loads_in_transformers(ranks: list[Any]) -> None:
    assert [rank["pretrained"] for rank in ranks] == [[]] * len(ranks)


@pytest.mark.slow
def test_old_partial_checkpoints_are_deleted(ranks: list[Any]) -> None:
    assert [rank["pruned"] for rank in ranks] == [(3, ["2_partial", "3_partial"])] * len(ranks)


@pytest.mark.slow
def test_interrupted_save_keeps_previous_checkpoint(ranks: list[Any]) -> None:
    expected = [f"{kind}_{rank}_0.pt" for kind in ("model", "optimizer") for rank in (0, 1)]
    for number, rank in enumerate(ranks):
        message, resumed, leftovers, names = rank["interrupted"]
        expected_text = "rank 1: OSError: [Errno 28] No space left" if number < 2 else "another replica's"
        assert expected_text in message
        assert resumed
        assert leftovers
        assert names == sorted(["manifest.json", "user_content.pt", *expected])


ERRORS = {
    "degrees": "was saved with pipeline_parallel_degree 2, and this job has",
    "no model": "call smp.DistributedModel before.",
    "no optimizer": "call smp.DistributedOptimizer before, or resume with load_optimizer=False.",
    "missing": "fourth_partial does not exist; check path and tag",
    "no newest": "the newest checkpoint is unknown; give a tag",
    "a part is lost": "could not be read from on rank 1: FileNotFoundError",
    "no manifest": "other_partial has no manifest.json, so it was not saved by this library",
    "plain model": "can't save a BertForQuestionAnswering; wrap it with smp.DistributedModel first.",
    "content": "could not be written on rank 0",
    "optimizer of one rank": "The ranks' optimizers have different parameters",
    "optimizer": "a partial one of 3 partitions, and this job has 2",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ERRORS)
def test_every_rank_reports_error_of_checkpoint(ranks: list[Any], name: str) -> None:
    for rank in ranks[:2]:
        assert ERRORS[name] in rank["refused"][name]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tolerance"), [("GradScaler", 1e-4), ("fp16", 1e-4), ("bf16", 1e-6)])
def test_half_precision_equals_one_process(ranks: list[Any], name: str, tolerance: float) -> None:
    """With float16 one rank has an infinite gradient, and all ranks skip that step."""
    for rank in ranks:
        result = rank["precision"][name]
        assert result["losses"] < tolerance
        assert result["parameters"] < tolerance
        assert result["scales"] == result["expected scales"]
        assert len(set(result["scales"])) == (1 if name == "bf16" else 2)
        assert result["skipped"] == ([] if name == "bf16" else [1])


@pytest.mark.slow
def test_loss_scale_resumes(ranks: list[Any]) -> None:
    assert [rank["precision"]["fp16"]["resumed"] for rank in ranks] == [512.0] * len(ranks)


def checkpoint(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "model").write_text(text)
    return folder


def test_recover_restores_checkpoint_after_death_between_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = checkpoint(tmp_path / "a_partial", "before")
    finished, plain = checkpoint(tmp_path / ".a_partial.incomplete", "after"), Path.rename

    def die(path: Path, target: Path) -> Path:
        if path == finished:
            raise KeyboardInterrupt
        return plain(path, target)

    monkeypatch.setattr(Path, "rename", die)
    with pytest.raises(KeyboardInterrupt):
        files.put_in_place(finished, place)
    monkeypatch.undo()
    assert not place.exists()
    for _ in range(2):  # every rank of a host calls it
        files.recover(place)
        assert (place / "model").read_text() == "before"
    files.put_in_place(finished, place)
    assert (place / "model").read_text() == "after"
    assert [path.name for path in tmp_path.iterdir()] == ["a_partial"]


def test_write_all_changes_all_files_or_none(tmp_path: Path) -> None:
    optimizer, model = tmp_path / "optimizer_a", tmp_path / "a"
    files.write_all({optimizer: 1, model: 1})
    with pytest.raises(AttributeError):
        files.write_all({optimizer: 2, model: lambda: None})
    assert [torch.load(path) for path in (optimizer, model)] == [1, 1]
    assert sorted(tmp_path.iterdir()) == [model, optimizer]


def test_interrupted_pruning_hides_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        os.utime(checkpoint(tmp_path / f"{number}_partial", ""), (number, number))
    monkeypatch.setattr(files, "remove", lambda folder: None)
    files.keep_newest(tmp_path, "_partial", 1)
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["1_partial"]


def test_dynamic_loss_scale_halves_and_doubles() -> None:
    scale = LossScale(8.0, dynamic=True, scale_window=2)
    scale.update(overflow=True)
    assert scale.scale == 4.0
    scale.update(overflow=False)
    scale.update(overflow=False)
    assert scale.scale == 8.0


def test_unknown_argument_of_loss_scale_is_an_error() -> None:
    with pytest.raises(ValueError, match="dynamic_loss_args has no scale_windw"):
        loss_scale(None, dynamic=True, arguments={"scale_windw": 1})
