"""What a user's program gets, next to sagemaker-training's own: both run the same job, on one host and on two.

The differences are listed, with reasons, in train/README.md.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from berth.contract.variables import PREFIX
from berth.train.job import decoded_hyperparameters, program_arguments
from tests.unit.train.recorded_jobs import Request, requests
from tests.unit.train.test_entry import START

TOOLKIT = "from sagemaker_training.cli.train import main; main()"
SEEN = """
import json, os, sys
from pathlib import Path
seen = {"argv": sys.argv, "cwd": os.getcwd(), "environ": dict(os.environ)}
Path(os.environ["SM_OUTPUT_DATA_DIR"], "seen.json").write_text(json.dumps(seen))
"""
# The names of this machine's loopback, which both resolve.
HOSTS = ("127.0.0.1", "localhost")
# What the kit adds for libraries that read them (its own BERTH_… are left out), and what both set in their own way.
ONLY_OURS = {
    "ACCELERATE_USE_CPU",
    "GLOO_SOCKET_IFNAME",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PYTHONUNBUFFERED",
}
DIFFERENT = {"PYTHONPATH"}


def job() -> Request:
    """What PyTorch sends of values of all kinds, with a tuner's key and a boolean that is false."""
    request = requests()["v2 PyTorch, hyperparameters of all kinds"]
    given = {**request.hyperparameters, "no": "false", "_tuning_objective_metric": '"loss"'}
    del given["sagemaker_submit_directory"]  # the code lies there already, as in local mode
    return Request(request.name, {**request.fields, "HyperParameters": given})


def start(code: str, folder: Path, host: str, hosts: tuple[str, ...], port: int) -> tuple[Path, subprocess.Popen[str]]:
    """One host of the job, in a folder of its own that stands for /opt/ml."""
    root = folder / host
    job().lay_out(root)
    resources = {"hosts": hosts, "current_host": host, "network_interface_name": "lo", "current_instance_type": "local"}
    (root / "input/config/resourceconfig.json").write_text(json.dumps(resources))
    for place in ("code", "input/data/train", "output/data"):
        (root / place).mkdir(parents=True)
    (root / "code/train.py").write_text(SEEN)
    command = [sys.executable, "-P", "-c", code, str(root), str(folder / f"run-{host}"), str(port)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "SAGEMAKER_BASE_DIR": str(root)}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return root, subprocess.Popen(command, env=environment, text=True, **output)  # type: ignore[call-overload,no-any-return]


def seen(code: str, folder: Path, hosts: tuple[str, ...]) -> list[Any]:
    """What the program of each host saw, with ROOT for its /opt/ml."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    started = [start(code, folder, host, hosts, port) for host in hosts]
    found = []
    for root, process in started:
        log, _ = process.communicate(timeout=120)
        assert process.returncode == 0, log
        found.append(json.loads((root / "output/data/seen.json").read_text().replace(str(root), "ROOT")))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [HOSTS[:1], HOSTS], ids=["one host", "two hosts"])
def test_a_program_gets_what_sagemaker_training_gives(hosts: tuple[str, ...], tmp_path: Path) -> None:
    theirs, ours = (seen(code, tmp_path / name, hosts) for name, code in (("theirs", TOOLKIT), ("ours", START)))
    for host, of_theirs, of_ours in zip(hosts, theirs, ours, strict=True):
        assert (of_ours["argv"], of_ours["cwd"]) == (of_theirs["argv"], of_theirs["cwd"])
        assert len(of_ours["argv"]) == 23
        names = of_ours["environ"].keys() | of_theirs["environ"].keys()
        different = {name for name in names if of_ours["environ"].get(name) != of_theirs["environ"].get(name)}
        assert {name for name in different if not name.startswith(PREFIX)} == ONLY_OURS | DIFFERENT
        values = of_ours["environ"]
        assert (values["SM_CURRENT_HOST"], values["CURRENT_HOST"]) == (host, host)
        assert json.loads(values["SM_TRAINING_ENV"])["current_host"] == host
        assert [values[f"SM_HP_{name}"] for name in ("YES", "NO", "LIST", "DICT", "EMPTY", "NONE")] == [
            *("true", "false", "[1,2]", '{"a":1}', "", ""),
        ]


def test_an_option_that_says_nothing_and_kills_scripts_of_today_is_left_out(tmp_path: Path) -> None:
    """A notebook's mp_parameters that asks for nothing; HfArgumentParser of transformers 5 knows no such option."""
    fields = {**job().fields, "HyperParameters": {"mp_parameters": "{}", "epochs": "1"}}
    read = Request("", fields).job(tmp_path)
    assert program_arguments(read) == ["--epochs", "1"]
    assert decoded_hyperparameters(read) == {"epochs": 1}
