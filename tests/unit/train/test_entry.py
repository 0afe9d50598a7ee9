"""The whole entry on two hosts: programs, failures, refusals, GPUs; and other commands of the image."""

import contextlib
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from berth.train import entry
from tests.unit.train.entries import HOSTS, ON_A_GPU, start_hosts

pytestmark = pytest.mark.slow


def run_hosts(folder: Path, hosts: list[str], **environ: str) -> tuple[list[int], list[str], list[Path]]:
    processes, failures = start_hosts(folder, hosts, **environ)
    texts = [process.communicate(timeout=60)[0] for process in processes]
    return [process.returncode for process in processes], texts, failures


def test_program_imports_its_own_module_named_like_ours(tmp_path: Path) -> None:
    codes, texts, failures = run_hosts(tmp_path, HOSTS)
    assert codes == [0, 0], texts
    assert "hosts 127.0.0.1 own qa ['--epochs', '3']\n" in texts[0]
    assert "hosts localhost own qa ['--epochs', '3']\n" in texts[1]
    assert not any(path.exists() for path in failures)


def test_workers_failure_is_reported_on_every_host(tmp_path: Path) -> None:
    codes, texts, failures = run_hosts(tmp_path, HOSTS, RAISE="localhost")
    assert codes == [1, 1], texts
    for path in failures:
        assert path.read_text().splitlines()[:2] == [
            "localhost: ValueError: no rows (raised at qa.py:3 in fail)",
            "localhost, exit code 1",
        ]


PRINTS = """
for number in range(40_000):
    print(f"line {number:5} {'x' * 60}", flush=number == 0)
"""


def test_job_survives_a_log_that_is_not_read_for_longer_than_the_peer_timeout(tmp_path: Path) -> None:
    """Each host prints 2.8 MB, more than the pipes between program and log hold, so its program waits."""
    processes, _ = start_hosts(tmp_path, HOSTS, PRINTS, BERTH_PEER_TIMEOUT="4")
    with contextlib.ExitStack() as stack:
        for process in processes:
            stack.callback(process.kill)
        while len(list(tmp_path.glob("run-*/pids/*"))) < len(HOSTS):
            assert [process.poll() for process in processes] == [None, None]
            time.sleep(0.05)
        time.sleep(5)  # longer than the peer time-out
        assert [process.poll() for process in processes] == [None, None]
        with ThreadPoolExecutor() as pool:
            texts = [output for output, _ in pool.map(lambda process: process.communicate(timeout=60), processes)]
    assert [process.returncode for process in processes] == [0, 0], texts
    for text in texts:
        assert text.count("\nline ") == 40_000
        assert "no sign of life" not in text


MPL = "BERTH_DISTRIBUTION must be none, mpi or smddp, not 'mpl'."
WORKER_STOPPED = "host localhost stopped before all hosts had joined: "


def end_within(seconds: float, processes: list[subprocess.Popen[str]], failures: list[Path]) -> list[str]:
    """Wait for hosts that must fail within `seconds`; returns the first lines of their failure files."""
    began = time.monotonic()
    texts = [process.communicate(timeout=60)[0] for process in processes]
    assert time.monotonic() - began < seconds, texts
    assert [process.returncode for process in processes] == [1] * len(processes), texts
    assert not any("Traceback" in text for text in texts), texts
    return [path.read_text().splitlines()[0] for path in failures]


@pytest.mark.parametrize(
    ("refused", "sentence"),
    [(["127.0.0.1"], MPL), (["localhost"], WORKER_STOPPED + MPL), ([*HOSTS, "127.1"], MPL)],
    ids=["leader", "worker", "all hosts"],
)
def test_refused_host_ends_the_job_on_all_hosts(tmp_path: Path, refused: list[str], sentence: str) -> None:
    own = {host: {"BERTH_DISTRIBUTION": "mpl"} for host in refused}
    processes, failures = start_hosts(tmp_path, [*HOSTS, "127.1"], own=own)
    assert end_within(15, processes, failures) == [sentence] * 3


@pytest.mark.parametrize(
    ("commands", "reason"),
    [((), "mpirun is not on PATH"), (("mpirun",), "ssh-keygen is not in the image")],
    ids=["mpirun", "sshd"],
)
def test_command_missing_on_a_worker_is_reported_on_every_host(
    tmp_path: Path, commands: tuple[str, ...], reason: str
) -> None:
    for folder, names in (("all", ["mpirun"]), ("few", commands)):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.8'\n")
            (tmp_path / folder / name).chmod(0o755)
    own = {"127.0.0.1": {"PATH": f"{tmp_path / 'all'}:/usr/bin:/bin"}, "localhost": {"PATH": str(tmp_path / "few")}}
    processes, failures = start_hosts(tmp_path, list(own), own=own, BERTH_DISTRIBUTION="mpi")
    for line in end_within(15, processes, failures):
        assert line.startswith(WORKER_STOPPED + reason)


def test_refused_worker_reports_its_own_reason_if_the_leader_is_missing(tmp_path: Path) -> None:
    processes, failures = start_hosts(tmp_path, HOSTS, BERTH_DISTRIBUTION="mpl", BERTH_RENDEZVOUS_TIMEOUT="3")
    processes[0].kill()
    processes[0].communicate(timeout=60)
    assert end_within(30, processes[1:], failures[1:]) == [MPL]


def test_old_driver_on_a_worker_is_reported_on_every_host(tmp_path: Path, libcuda: Callable[..., Path]) -> None:
    old = {"FAKE_CUDA_VERSION": "12020", "FAKE_CUDA_DEVICES": "NVIDIA A10G:8.6"}
    old["LD_LIBRARY_PATH"] = str(libcuda(tmp_path / "lib"))
    processes, failures = start_hosts(tmp_path, HOSTS, own={"localhost": old}, starts={"localhost": ON_A_GPU})
    for line in end_within(15, processes, failures):
        assert line.startswith(
            f"{WORKER_STOPPED}This image's torch is built for CUDA 13.0, which needs driver 580 or newer"
        )


def on_gpus(tmp_path: Path, library: Path, gpus: int, devices: str) -> tuple[int, str, str]:
    """Run the entry on a host with `gpus` device nodes whose driver offers `devices`.

    Returns exit code, log and failure file.
    """
    start = ON_A_GPU.replace("Hardware(1,", f"Hardware({gpus},")
    driver = {"LD_LIBRARY_PATH": str(library), "FAKE_CUDA_VERSION": "13000", "FAKE_CUDA_DEVICES": devices}
    (process,), (failure,) = start_hosts(tmp_path, ["algo-1"], starts={"algo-1": start}, **driver)
    log, _ = process.communicate(timeout=60)
    return process.returncode, log, failure.read_text() if failure.exists() else ""


def test_number_of_ranks_is_that_of_the_drivers_gpus(tmp_path: Path, libcuda: Callable[..., Path]) -> None:
    library = libcuda(tmp_path / "lib")
    code, log, _ = on_gpus(tmp_path / "mig", library, 8, "NVIDIA A100-SXM4-40GB MIG 1g.5gb:8.0")
    assert code == 0, log
    assert "berth: the driver offers 1 of 8 GPUs here (MIG: a process can use one instance)\n" in log
    assert "backend: nccl, over lo: 1 GPU on each host" in log
    code, _, failure = on_gpus(tmp_path / "lost", library, 2, "NVIDIA A10G:8.6")
    assert code == 1
    assert failure.startswith("The driver offers 1 of the 2 GPUs in this container: look at nvidia-smi and dmesg on ")


def test_idle_gpus_are_in_first_and_last_line(tmp_path: Path, libcuda: Callable[..., Path]) -> None:
    code, log, _ = on_gpus(tmp_path, libcuda(tmp_path / "lib"), 2, "NVIDIA A10G:8.6,NVIDIA A10G:8.6")
    assert code == 0, log
    idle = "1 of 2 GPUs may stay idle, because your program runs once per host"
    first, *_, last = log.splitlines()
    assert first.startswith(f"berth: {idle}")
    assert last.startswith(f"berth: the job ends with exit code 0; {idle}")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            ["serve"],
            2,
            "this is the training image, which does not serve; deploy with the inference image: "
            'estimator.deploy(1, "ml.m5.xlarge", image_uri="…/berth-serve…"), whose URI `python build.py uri serve` '
            "prints.",
        ),
        (["train", "--epochs"], 2, "train takes no arguments"),
        (["no-such-program"], 127, "no-such-program can't be run in this image"),
        (["/"], 126, "/ can't be run in this image"),
    ],
)
def test_other_command_that_cannot_run_is_refused(
    arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.dispatch(arguments) == code
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(("leaves", "note"), [("", True), ("localhost", False)])
def test_last_line_says_that_no_host_leaves_a_model(tmp_path: Path, leaves: str, note: bool) -> None:
    for host in HOSTS:
        (tmp_path / host / "model").mkdir(parents=True)
    if leaves:
        (tmp_path / leaves / "model/model.pt").write_text("weights")
    codes, texts, failures = run_hosts(tmp_path, HOSTS)
    last = [text.splitlines()[-1] for text in texts]
    assert codes == [0, 0]
    assert not any(path.exists() for path in failures)
    empty = "; /opt/ml/model is empty, so the job leaves no model"
    assert [empty in line for line in last] == [note, note], last
