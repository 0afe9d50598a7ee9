"""Hosts that hold different files of a channel: what each of their ranks takes, and jobs of two hosts on a machine."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler
from transformers import TrainingArguments

from berth.qa.squad import Answer, DataError, Example
from berth.train.environment import Rank
from berth.train.finetune.inputs import data, divided
from berth.train.finetune.inputs.divided import HostWindows
from berth.train.finetune.inputs.features import HostSampler, grouped_order
from berth.train.finetune.recipe import Paths, Recipe

TWO_HOSTS = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
"""For ranks with a folder each: as if each were alone on its host."""


def batches_of(host: int, windows: Sequence[int], epoch: int, *, by_node: bool) -> list[list[list[int]]]:
    """The batches of two of each of a host's two ranks, as accelerate deals them out, of hosts with so many `windows`.

    `by_node`: mpirun counted the ranks over the hosts in turn, as it can be told to.
    """
    lengths = np.arange(windows[host]) % 7
    found = HostWindows(dict(zip("ab", windows, strict=True)), 0)
    dealt = []
    for local in (0, 1):
        number = 2 * local + host if by_node else 2 * host + local
        sampler = HostSampler(lambda n: grouped_order(lengths, 4, 5, n), 2, found.batches(4), Rank(number, local, 4, 2))
        sampler.set_epoch(epoch)
        dealt.append(list(BatchSamplerShard(BatchSampler(sampler, 2, drop_last=False), 4, number)))
        assert len(sampler) == 4 * sum(map(len, dealt[-1]))
    return dealt


@pytest.mark.parametrize("by_node", [False, True])
@pytest.mark.parametrize("windows", [(110, 61), (61, 110), (80, 80), (1, 30)])
def test_each_host_takes_its_own_windows_and_as_many_as_the_others(windows: tuple[int, int], by_node: bool) -> None:
    fewest = min(windows)
    sizes = set()
    for host, count in enumerate(windows):
        ranks = batches_of(host, windows, 0, by_node=by_node)
        sizes.add(tuple(map(len, ranks)))
        taken = [window for rank in ranks for each in rank for window in each]
        assert all(len(each) == 2 for rank in ranks for each in rank)
        assert set(taken) <= set(range(count)), "no window of another host"
        assert len(set(taken)) == min(count, len(taken)), "none twice while there are others"
        if count == fewest:
            assert set(taken) == set(range(count)), "the smallest host gives all"
        if count > 60:
            assert batches_of(host, windows, 1, by_node=by_node) != ranks, "another order in the next epoch"
    assert len(sizes) == 1, "equal steps on all ranks"


def test_the_line_has_the_numbers() -> None:
    found = HostWindows({"algo-1": 132, "algo-2": 98}, 200)
    assert found.line(8, 2) == (
        "train data: divided among 2 hosts (ShardedByS3Key), 98 windows on algo-2 at least and 132 on algo-1 at most: "
        "an epoch has 7 steps of 16 windows on each host, enough for the fewest"
    )


def declare(base: Path, *names: str) -> None:
    """Have the channels of those names divided by S3 key, and the others whole."""
    types = {
        name: "ShardedByS3Key" if name in names else "FullyReplicated" for name in ("train", "validation", "model")
    }
    config = {name: {"TrainingInputMode": "File", "S3DistributionType": kind} for name, kind in types.items()}
    (base / "input/config").mkdir(parents=True, exist_ok=True)
    (base / "input/config/inputdataconfig.json").write_text(json.dumps(config))


def test_which_channels_are_divided(tmp_path: Path) -> None:
    declare(tmp_path, "train")
    assert data.divided_channels(Paths(tmp_path), 2) == {"train"}
    assert not data.divided_channels(Paths(tmp_path), 1), "one host has all of it"
    assert not data.divided_channels(Paths(tmp_path / "no"), 2)
    declare(tmp_path, "train", "model")
    with pytest.raises(DataError, match="Channel model is ShardedByS3Key, so that no host has the whole model"):
        data.divided_channels(Paths(tmp_path), 2)


def test_a_file_of_a_divided_channel_is_divided_and_one_beside_it_is_not(tmp_path: Path) -> None:
    paths, parts = Paths(tmp_path), frozenset({"train"})
    for name in ("input/data/train/part.json", "other.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    for recipe, is_part in (
        (Recipe(), True),
        (Recipe(train_file="part.json"), True),
        (Recipe(train_file=str(tmp_path / "other.json")), False),
    ):
        source = data.find("train", recipe, paths, parts, parts)
        assert (source.divided, source.is_empty) == (is_part, False)
    (tmp_path / "input/data/train/part.json").unlink()
    assert data.find("train", Recipe(), paths, parts, parts).is_empty


@pytest.mark.parametrize(
    ("ids", "fault"), [((), "has no question on any host"), (("a", "a"), "has questions of one id on two hosts")]
)
def test_what_can_not_be_put_together(ids: tuple[str, ...], fault: str) -> None:
    mine = [Example(name, "what?", "this", (Answer("this", 0),)) for name in ids]
    with pytest.raises(DataError, match=f"The channel of test data {fault}"):
        divided._put_together("test", mine, Rank(), print)


def test_what_needs_all_of_the_data_is_refused(tmp_path: Path) -> None:
    args = TrainingArguments(tmp_path, train_sampling_strategy="batch_rebalance", use_cpu=True)
    args.accelerator_config.split_batches = True
    with pytest.raises(DataError, match="split_batches and train_sampling_strategy batch_rebalance can't be had while"):
        divided.check_arguments(args)
    divided.check_arguments(TrainingArguments(tmp_path, use_cpu=True))


@pytest.mark.slow
def test_two_hosts_train_on_their_own_parts_and_are_measured_on_all(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, squad: Any, few_steps: dict[str, str]
) -> None:
    """Equal steps and bits from unequal parts, also when the job goes on in mid-epoch."""
    given = few_steps | {"max_steps": "-1", "num_train_epochs": "2", "save_strategy": "steps", "save_steps": "0.7"}
    given |= {"export_openvino": "false"}
    parts = (range(0, 20), range(40, 53))
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, given, train=part) for rank, part in enumerate(parts)]
    for job in pair:
        declare(job.base, "train", "validation")
    (pair[1].base / "input/data/validation/part.json").write_text(json.dumps(squad(range(30, 33))))
    ends = host.run(*pair, **TWO_HOSTS)
    assert [end.code for end in ends] == [0, 0], ends
    assert "train data: divided among 2 hosts (ShardedByS3Key), " in ends[0].out
    assert "validation data: divided among 2 hosts (ShardedByS3Key), put together: 10, 3" in ends[0].out
    assert "weights: the same on all 2 ranks" in ends[0].out
    whole = pair[0].metrics()
    assert (whole["train_samples"], whole["eval_samples"], whole["epoch"]) == (33, 13, 2.0)
    answered = json.loads((pair[0].base / "output/data/eval_predictions.json").read_text())
    assert sorted(answered) == [f"q{number}" for number in range(20, 33)]

    saved = pair[0].checkpoints()[0]
    for job in (pair[1], pair[0]):
        job.goes_on_from(saved)
    ends = host.run(*pair, **TWO_HOSTS)
    assert [end.code for end in ends] == [0, 0], ends
    assert "going on from " in ends[0].out
    assert pair[0].metrics()["weights_sha256"] == whole["weights_sha256"]

    solo = new_job(tmp_path / "solo", tiny_model, given, train=parts[0])
    assert [end.code for end in host.run(solo)] == [0]
    alone, together = solo.weights(), pair[0].weights()
    assert max((together[name] - alone[name]).abs().max().item() for name in together) > 1e-3


@pytest.mark.slow
def test_hosts_without_a_part_or_with_other_data_than_they_should_have_are_refused(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, few_steps, train=range(20 + rank)) for rank in (0, 1)]
    for end in host.run(*pair, **TWO_HOSTS):
        assert end.code == 1
        assert end.err.startswith(
            "berth: error: The train data differs between hosts, though its channel is not Sharded"
        )
    for job in pair:
        declare(job.base, "train")
    shutil.rmtree(pair[1].base / "input/data/train")
    for end in host.run(*pair, **TWO_HOSTS):
        assert end.code == 1
        assert end.err == (
            "berth: error: No file of the channel train came to host 2, for it is divided among 2 hosts "
            "(ShardedByS3Key): give it a file for each host or more, or make it FullyReplicated.\n"
        )
    assert not (pair[0].base / "model").exists()
