"""What bench/smdistributed_scripts.py edits of a script, how it reads an end, and its reference in one process."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench import smdistributed_scripts
from bench.scripts import records
from bench.scripts import smdistributed_jobs as jobs
from bench.scripts.smdistributed_jobs import Bench, Told
from bench.scripts.smdistributed_table import PT_MNIST, RUNS, TRAIN, Run
from berth.common.errors import UserError
from berth.contract.launch_options import read_launch_options
from berth.train.rank_events import alone_sentence

LOSS = r"loss: ([0-9.]+|nan)"
SCRIPT = """
import torch
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP
import smdistributed.dataparallel.torch.distributed as dist

dist.init_process_group()
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
rows = torch.arange(16.0).view(4, 4)[dist.get_rank() :: dist.get_world_size()]
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(3):
    optimizer.zero_grad()
    loss = model(rows).square().mean()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss: {loss.item():.6f}")
"""


def write(folder: Path, log: str, *replicas: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    (folder / "rank-0.log").write_text(log)
    for rank, weights in enumerate(replicas):
        torch.save({"replica": rank, "weights": weights}, folder / f"rank-{rank}.pt")
    return folder


def test_a_script_is_edited_in_calls_of_cuda_alone_and_lies_beside_what_it_asks_for(tmp_path: Path) -> None:
    text = 'import torchnet\ndevice = torch.device("cuda")\ntorch.cuda.set_device(0)\nloss.backward()\n'
    script = replace(TRAIN, blob=jobs.blob(text.encode()))
    (tmp_path / script.source / "Chapter06/src").mkdir(parents=True)
    (tmp_path / script.source / script.path).write_text(text)
    bench = Bench(tmp_path, tmp_path, {})
    assert jobs.write_script(script, bench, tmp_path / "code") == 2
    edited = 'import torchnet\ndevice = torch.device("cpu")\n(lambda device: None)(0)\nloss.backward()\n'
    assert (tmp_path / "code/train.py").read_text() == edited
    assert [each.name for each in (tmp_path / "code/doubles/packages").iterdir()] == ["torchnet"]
    assert (tmp_path / "code/doubles/start.py").is_file()
    assert not (tmp_path / "code/berth").exists()
    with pytest.raises(UserError, match=r"train\.py is not the text of PacktPublishing/.* at 2d565cc3: fetch it again"):
        jobs.write_script(TRAIN, bench, tmp_path / "other")
    with pytest.raises(UserError, match=r"pt_mnist\.py is not there: let BERTH_SMDISTRIBUTED_SCRIPTS name a folder"):
        jobs.write_script(PT_MNIST, bench, tmp_path / "other")


def test_the_checkouts_kit_is_found_before_the_images_where_that_is_asked_for(tmp_path: Path) -> None:
    script = replace(TRAIN, path="train.py", blob=jobs.blob(b""))
    (tmp_path / script.source).mkdir()
    (tmp_path / script.source / "train.py").touch()
    bench = Bench(tmp_path, tmp_path, {}, own_kit=True)
    jobs.write_script(script, bench, tmp_path / "code")
    ask = "import berth.train.entry as entry; print(entry.__file__)"
    command, kit = [sys.executable, "-P", "-c", ask], {"PYTHONPATH": str(tmp_path / "code")}
    assert bench.kit.keys() == kit.keys()
    found = subprocess.run(command, cwd="/", env=kit, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(tmp_path / "code/berth/train/entry.py")


def test_a_blob_is_gits_name_of_a_file() -> None:
    assert jobs.blob(b"a\n") == "78981922613b2afb6025042ff6bd878ac1994e85"


def test_every_run_has_a_whole_number_of_replicas_and_starts_as_its_estimator_asks() -> None:
    for run in RUNS:
        assert run.replicas * (run.parameters or {}).get("partitions", 1) == run.ranks
        options = read_launch_options(jobs.asked(run), "doubles/start.py", {})
        assert (options.mpi, options.problems) == (True, ())
        assert (options.smddp, options.model_parallel) == (run.parameters is None, run.parameters or {})
        assert options.processes == (None if run.parameters is None else run.ranks)


@pytest.mark.parametrize(("exit_code", "reason", "expected"), [(1, "x by zero", True), (1, "x", False), (0, "", False)])
def test_a_failure_that_is_known_is_expected_by_name(exit_code: int, reason: str, *, expected: bool) -> None:
    wrong = Run(TRAIN, 4, LOSS, fails="by zero")
    told = Told(Path(), exit_code, reason, reason, 1.0)
    assert smdistributed_scripts.as_expected(wrong, told) is expected
    assert smdistributed_scripts.as_expected(replace(wrong, fails=""), told) is (exit_code == 0)


def test_what_the_log_says_of_ranks_that_train_apart_is_expected_of_these_alone() -> None:
    joined = "process group of 4"
    said = alone_sentence([[joined, f"weights after the first step {digest}"] for digest in "ab"], 4)
    apart, together = Told(Path(), 0, "", f"ends; {said}", 1.0), Told(Path(), 0, "", "ends", 1.0)
    for alone in (True, False):
        run = Run(TRAIN, 4, LOSS, alone=alone)
        assert smdistributed_scripts.as_expected(run, apart) is alone
        assert smdistributed_scripts.as_expected(run, together) is not alone
    row, good = smdistributed_scripts.make_row(Run(TRAIN, 4, LOSS, alone=True), 0, apart, ("equal", True))
    assert good
    assert f"| ended; {said} | equal | 1 |" in row


def test_losses_and_weights_are_compared(tmp_path: Path) -> None:
    one = write(tmp_path / "one", "loss: 1.0\nloss: 0.25\n", *2 * [{"a": torch.ones(2)}])
    same = write(tmp_path / "same", "loss: 1.0\nloss: 0.26\n", *2 * [{"a": torch.ones(2) + 1e-6}])
    assert not records.compare(same, one, LOSS).problems  # one in the last digit printed
    far = write(tmp_path / "far", "loss: 1.0\nloss: 0.50\n", *2 * [{"a": torch.ones(2) + 1e-3}])
    assert records.compare(far, one, LOSS).problems == ["losses differ", "weights differ"]
    assert records.compare(far, one, LOSS, 0.3).problems == []
    apart = write(tmp_path / "apart", "loss: 1.0\nloss: 0.25\n", {"a": torch.ones(2)}, {"a": torch.zeros(2)})
    assert "the replicas' weights differ by 1.0e+00" in records.compare(apart, one, LOSS).problems
    assert records.compare(same, one, LOSS, alone=True).problems == ["the replicas' weights should differ"]
    short = write(tmp_path / "short", "loss: 1.0\n", {"b": torch.ones(2)})
    assert records.compare(short, one, LOSS, whole=False).problems == []
    told = str(records.compare(short, one, LOSS))
    assert "1 losses printed, 2 by one process" in told
    assert "replica 0 lacks ['a'] and has ['b']" in told
    nan = write(tmp_path / "nan", "loss: nan\nloss: nan\n", *2 * [{"a": torch.full((2,), torch.nan)}])
    assert records.compare(nan, one, LOSS).problems[:2] == ["losses differ", "weights differ"]


@pytest.mark.slow
def test_replicas_of_one_process_train_as_the_whole_batch_does(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    told = {"RECORDED_SCRIPT": "script.py", "RECORD_FOLDER": str(tmp_path)}
    told |= {"REFERENCE_REPLICAS": "2", "REFERENCE_MICROBATCHES": "1"}
    command = [sys.executable, str(jobs.DOUBLES / "start.py")]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, **told}, check=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.arange(16.0).view(4, 4)).square().mean().backward()
        optimizer.step()
    kept = records.read_weights(tmp_path)
    assert kept.keys() == {0, 1}
    expected = {str(place): each.detach() for place, each in enumerate(model.parameters())}
    assert all(records.largest_difference(expected, weights) < 1e-6 for weights in kept.values())
    assert len(records.read_losses(tmp_path, LOSS)) == 3


@pytest.mark.slow
def test_a_replica_that_ends_before_the_others_is_named(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import replicas\n"
        "replicas.start(2, lambda: replicas.rank() or replicas.the.exchange(1))\n"
    )
    words = [sys.executable, "-c", program, str(jobs.DOUBLES / "one_process")]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "replica 0 exchanges with the others, of which one has ended" in ended.stderr
