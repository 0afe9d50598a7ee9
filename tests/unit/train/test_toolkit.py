"""A user's program gets the same arguments and environment from berth as from sagemaker-training, and reads pipes.

The differences are listed, with reasons, in train/README.md.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from berth.contract.variables import PREFIX
from tests.ports import free_port
from tests.unit.train.entries import START
from tests.unit.train.recorded_jobs import Request, requests

TOOLKIT = "from sagemaker_training.cli.train import main; main()"
SEEN = """
import json, os, sys
from pathlib import Path
seen = {"argv": sys.argv, "cwd": os.getcwd(), "environ": dict(os.environ)}
Path(os.environ["SM_OUTPUT_DATA_DIR"], "seen.json").write_text(json.dumps(seen))
"""
# Two names of this machine that berth and sagemaker-training can both resolve.
HOSTS = ("127.0.0.1", "localhost")
# Variables that only berth sets, besides BERTH_…, and those that both set to different values.
ONLY_OURS = {
    "ACCELERATE_USE_CPU",
    "GLOO_SOCKET_IFNAME",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PYTHONUNBUFFERED",
}
DIFFERENT = {"PYTHONPATH"}
# berth counts the container's share of CPUs, and GPUs by their device files, so the numbers may differ.
COUNTS = ("num_cpus", "num_gpus")
CHANNELS = ("train", "val", "validation", "test")
PYTORCH = "v2 PyTorch, hyperparameters of all kinds"
# Values of SM_HP_YES, NO, LIST, DICT, EMPTY and NONE: framework estimators send JSON, a generic Estimator plain text.
KINDS = {
    PYTORCH: ("true", "false", "[1,2]", '{"a":1}', "", ""),
    "v2 Estimator, hyperparameters of all kinds": ("True", "False", "[1,2]", "{'a': 1}", "", "None"),
}


def job(name: str) -> Request:
    """A recorded request with values of all kinds, plus a tuner's key, a false boolean and more channels."""
    request = requests()[name]
    no, metric = ("false", '"loss"') if request.hyperparameters["yes"] == "true" else ("False", "loss")
    hyperparameters = {**request.hyperparameters, "no": no, "_tuning_objective_metric": metric}
    hyperparameters.pop("sagemaker_submit_directory", "")  # the code is already in place, as in local mode
    (channel,) = request.fields["InputDataConfig"]
    channels = [{**channel, "ChannelName": each} for each in CHANNELS]
    return Request(name, {**request.fields, "HyperParameters": hyperparameters, "InputDataConfig": channels})


def start(
    code: str, request: Request, folder: Path, host: str, hosts: tuple[str, ...], port: int, program: str
) -> tuple[Path, subprocess.Popen[str]]:
    """Start one host of the job in its own folder instead of /opt/ml; returns the folder and the process."""
    root = folder / host
    request.lay_out(root)
    resources = {"hosts": hosts, "current_host": host, "network_interface_name": "lo", "current_instance_type": "local"}
    (root / "input/config/resourceconfig.json").write_text(json.dumps(resources))
    for place in ("code", *(f"input/data/{name}" for name in CHANNELS), "output/data"):
        (root / place).mkdir(parents=True)
    (root / "code/train.py").write_text(program)
    command = [sys.executable, "-P", "-c", code, str(root), str(folder / f"run-{host}"), str(port)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "SAGEMAKER_BASE_DIR": str(root)}
    environment["SAGEMAKER_PROGRAM"] = "train.py"
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return root, subprocess.Popen(command, env=environment, text=True, **output)  # type: ignore[call-overload,no-any-return]


def seen(code: str, request: Request, folder: Path, hosts: tuple[str, ...], program: str = SEEN) -> list[Any]:
    """What the program of each host saw, with ROOT instead of its folder."""
    port = free_port()
    started = [start(code, request, folder, host, hosts, port, program) for host in hosts]
    results = []
    for root, process in started:
        log, _ = process.communicate(timeout=120)
        assert process.returncode == 0, log
        results.append(json.loads((root / "output/data/seen.json").read_text().replace(str(root), "ROOT")))
    return results


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "hosts"),
    list(zip(KINDS, (HOSTS, HOSTS[:1]), strict=True)),
    ids=["JSON on two hosts", "plain text on one host"],
)
def test_program_gets_the_same_as_from_sagemaker_training(name: str, hosts: tuple[str, ...], tmp_path: Path) -> None:
    request = job(name)
    theirs, ours = (seen(code, request, tmp_path / side, hosts) for side, code in (("t", TOOLKIT), ("o", START)))
    for host, of_theirs, of_ours in zip(hosts, theirs, ours, strict=True):
        assert (of_ours["argv"], of_ours["cwd"]) == (of_theirs["argv"], of_theirs["cwd"])
        assert len(of_ours["argv"]) == 23
        for environ in (of_ours["environ"], of_theirs["environ"]):
            described = json.loads(environ["SM_TRAINING_ENV"])
            counted = [(int(environ.pop(f"SM_{name.upper()}")), described.pop(name)) for name in COUNTS]
            assert all(alone == within for alone, within in counted)
            environ["SM_TRAINING_ENV"] = json.dumps(described)
        names = of_ours["environ"].keys() | of_theirs["environ"].keys()
        different = {name for name in names if of_ours["environ"].get(name) != of_theirs["environ"].get(name)}
        assert {name for name in different if not name.startswith(PREFIX)} == ONLY_OURS | DIFFERENT
        values = of_ours["environ"]
        assert (values["SM_CURRENT_HOST"], values["CURRENT_HOST"]) == (host, host)
        assert json.loads(values["SM_TRAINING_ENV"])["current_host"] == host
        hyperparameters = tuple(values[f"SM_HP_{name}"] for name in ("YES", "NO", "LIST", "DICT", "EMPTY", "NONE"))
        assert hyperparameters == KINDS[name]
        places = [values[f"SM_CHANNEL_{name.upper()}"] for name in CHANNELS]
        assert places == [f"ROOT/input/data/{name}" for name in CHANNELS]


READS_A_PIPE = """
import json, os
from pathlib import Path
channel = Path(os.environ["SM_INPUT_DIR"], "data/train_0")
seen = {"channels": os.environ["SM_CHANNELS"], "pipe": channel.is_fifo(), "read": channel.read_text()}
Path(os.environ["SM_OUTPUT_DATA_DIR"], "seen.json").write_text(json.dumps(seen))
"""


@pytest.mark.slow
def test_program_reads_a_pipe_channel(tmp_path: Path) -> None:
    """In Pipe mode a channel is a pipe that SageMaker made; berth does not touch it."""
    plain = job(PYTORCH)
    channels = [{**channel, "InputMode": "Pipe"} for channel in plain.fields["InputDataConfig"]]
    piped = Request("", {**plain.fields, "InputDataConfig": channels})
    pipe = tmp_path / HOSTS[0] / "input/data/train_0"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.write_text("a record"), daemon=True).start()
    (ours,) = seen(START, piped, tmp_path, HOSTS[:1], READS_A_PIPE)
    assert (ours["pipe"], ours["read"]) == (True, "a record")
    assert "train" in ours["channels"]
