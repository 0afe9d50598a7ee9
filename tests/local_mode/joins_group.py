"""A user's script for SDK v3: joins the process group of its launcher, and writes down the members.

`--group`: join with torch, with accelerate, or not at all. The sum of distinct powers proves that all ranks took part.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import berth_sample  # of requirements.txt
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
for name in ("text", "settings", "rate", "flag", "group"):
    parser.add_argument(f"--{name}")
record: dict[str, Any] = vars(parser.parse_args())
record |= {"environment": os.environ["GREETING"], "package": berth_sample.VALUE}
record["rows"] = (Path(os.environ["SM_CHANNEL_TRAIN"]) / "rows.txt").read_text()

if record["group"] == "torch":
    dist.init_process_group("gloo")
elif record["group"] == "accelerate":
    from accelerate import Accelerator

    assert Accelerator().num_processes == int(os.environ["WORLD_SIZE"])

rank, total = 0, torch.ones(1)
me = [os.environ["SM_CURRENT_HOST"], os.environ.get("LOCAL_RANK"), len(os.sched_getaffinity(0))]
me += [os.environ.get(f"{library}_SOCKET_IFNAME") for library in ("GLOO", "NCCL")]
ranks: list[Any] = [me]
if dist.is_initialized():
    rank, ranks = dist.get_rank(), [None] * dist.get_world_size()
    total *= 10**rank
    dist.all_reduce(total)
    dist.all_gather_object(ranks, me)
    dist.destroy_process_group()
if rank == 0:
    record |= {"sum": int(total), "ranks": ranks}
    Path(os.environ["SM_MODEL_DIR"], "group.json").write_text(json.dumps(record))
