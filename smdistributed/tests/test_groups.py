"""smp.init, ranks and groups: the job's options, and the exchange of objects between real ranks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import rank_jobs
import torch
import torch.distributed as dist

from berth.smdistributed.modelparallel.parameters import ParameterError
from berth.smdistributed.modelparallel.torch import groups

EXCHANGE = """
smp.init({"partitions": 2, "ddp": True, "placement_strategy": "spread"})
smp.init()
smp.init({"pipeline_parallel_degree": 2, "ddp": True, "placement_strategy": "spread", "_match_weights": True})
results = {name: getattr(smp, name)() for name in (
    "rank", "size", "local_rank", "local_size", "pp_rank", "pp_size", "dp_rank", "dp_size", "mp_rank", "mp_size",
    "rdp_rank", "rdp_size", "tp_rank", "tp_size", "get_pp_group", "get_mp_group", "get_dp_group", "is_initialized")}
results["gathered"] = smp.allgather({"rank": smp.rank()}, smp.PP_GROUP)
smp.barrier(); smp.dp_barrier(); smp.mp_barrier(); smp.pp_barrier()
if smp.rank() == 1:
    smp.broadcast("from 1", smp.WORLD)
    results["received"] = "from 1"
else:
    results["received"] = smp.recv_from(1, rank_type=smp.RankType.WORLD_RANK)
if smp.pp_rank() == 0:
    smp.send(("to", smp.rank()), 1, smp.RankType.PP_RANK)
else:
    results["sent"] = smp.recv_from(0, smp.RankType.PP_RANK)
summed = torch.tensor([smp.rank() + 1.0])
dist.all_reduce(summed, group=smp.get_dp_process_group())
results["summed"] = summed.item()
try:
    smp.recv_from(2, smp.RankType.PP_RANK)
except ValueError as error:
    results["no such rank"] = str(error)
try:
    smp.init({"partitions": 4, "ddp": True})
except RuntimeError as error:
    results["again"] = str(error)
result(results)
"""
INIT = """
smp.init({"microbatches": 2, "pipeline_parallel_degree": 3, "ddp": True})
"""


@pytest.mark.slow
def test_ranks_groups_and_objects_on_four_ranks(tmp_path: Path) -> None:
    ranks = rank_jobs.run(EXCHANGE, 4, tmp_path)
    first, last = ranks[0], ranks[3]
    assert [each["rank"] for each in ranks] == [0, 1, 2, 3]
    assert [each["pp_rank"] for each in ranks] == [each["mp_rank"] for each in ranks] == [0, 0, 1, 1]
    assert [each["dp_rank"] for each in ranks] == [each["rdp_rank"] for each in ranks] == [0, 1, 0, 1]
    assert (first["size"], first["pp_size"], first["dp_size"], first["tp_size"], first["tp_rank"]) == (4, 2, 2, 1, 0)
    assert (last["local_rank"], last["local_size"], last["is_initialized"]) == (3, 4, True)
    assert (last["get_pp_group"], last["get_mp_group"], last["get_dp_group"]) == ([1, 3], [1, 3], [2, 3])
    assert last["gathered"] == [{"rank": 1}, {"rank": 3}]
    assert [each["received"] for each in ranks] == ["from 1"] * 4
    assert (ranks[2]["sent"], ranks[3]["sent"]) == (("to", 0), ("to", 1))
    assert [each["summed"] for each in ranks] == [3.0, 3.0, 7.0, 7.0]
    assert first["no such rank"] == "PP_RANK 2 does not exist; this rank's group has 0 to 1."
    assert first["again"].startswith("smp.init was called before with other parameters")


@pytest.mark.slow
def test_process_without_launcher_is_a_world_of_one(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(rank_jobs.OPENING + INIT + "print(smp.rank(), smp.size(), smp.pp_size(), smp.local_rank())")
    env = rank_jobs.environment(tmp_path, **{groups.VARIABLE: '{"microbatches": 4, "partitions": 1}'})
    process = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stdout) == (0, "0 1 1 0\n"), process.stderr
    assert "smp: open implementation, not AWS's library: 1 partitions × 1 replicas" in process.stderr
    assert f"smp: {groups.VARIABLE} sets microbatches to 4 instead of 2, which smp.init got\n" in process.stderr
    assert f"smp: {groups.VARIABLE} sets pipeline_parallel_degree to 1 instead of 3" in process.stderr


@pytest.mark.parametrize(
    ("arguments", "text", "expected"),
    [
        (None, None, {}),
        (None, "", {}),
        (None, '{"partitions": 2}', {"partitions": 2}),
        (None, json.dumps('{"partitions": 2}'), {"partitions": 2}),
        ({"microbatches": 4}, '{"partitions": 2}', {"microbatches": 4, "partitions": 2}),
        ({"partitions": 4, "ddp": True}, '{"partitions": 2}', {"partitions": 2, "ddp": True}),
        ({"pipeline_parallel_degree": 1, "ddp": True}, '{"partitions": 2}', {"partitions": 2, "ddp": True}),
    ],
)
def test_options_of_the_job_override_arguments_of_init(
    arguments: dict[str, int] | None, text: str | None, expected: dict[str, int]
) -> None:
    assert groups.requested(arguments, {} if text is None else {groups.VARIABLE: text}) == expected


@pytest.mark.parametrize("text", ["partitions", "[1]", "{"])
def test_options_must_be_a_json_object(text: str) -> None:
    with pytest.raises(ParameterError, match="which is not a JSON object"):
        groups.requested(None, {groups.VARIABLE: text})


def test_rank_before_init_is_an_error() -> None:
    with pytest.raises(groups.SMPNotInitialized, match=r"call smp\.init\(\) first"):
        groups.pp_rank()
    with pytest.raises(groups.SMPNotInitialized):
        groups.get_dp_process_group()
    assert not groups.is_initialized()


def test_gloo_for_gpus_is_refused_if_the_script_initialized_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend_config", lambda: "cpu:gloo,cuda:nccl")
    with pytest.raises(RuntimeError, match=r"initialized with cpu:gloo,cuda:nccl; call smp\.init\(\) without"):
        groups._join_world("gloo")
