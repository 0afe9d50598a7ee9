"""The whole entry, two hosts on this machine: their names are the loopback's address and `localhost`."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest

from berth.train import entry
from berth.train.hosts.events import Event, Signalled
from berth.train.hosts.rendezvous import Stopped

PROGRAM = """
import os, sys, qa
print("hosts", os.environ["SM_CURRENT_HOST"], qa.OWN, sys.argv[1:], flush=True)
if os.environ["SM_CURRENT_HOST"] == os.environ.get("RAISE"):
    qa.fail()
"""
OWN = "OWN = 'own qa'\ndef fail():\n    raise ValueError('no rows')\n"
START = """
import sys
from pathlib import Path
from berth.train.entry import train
from berth.train.launching.host import EntryPaths
sys.exit(train(EntryPaths(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))))
"""


def lay_out(folder: Path, host: str, hosts: list[str]) -> Path:
    root = folder / host
    config = root / "input" / "config"
    config.mkdir(parents=True)
    (root / "code").mkdir()
    (root / "code" / "train.py").write_text(PROGRAM)
    (root / "code" / "qa.py").write_text(OWN)
    hyperparameters = {"sagemaker_program": '"train.py"', "epochs": "3"}
    (config / "hyperparameters.json").write_text(json.dumps(hyperparameters))
    (config / "resourceconfig.json").write_text(json.dumps({"hosts": hosts, "current_host": host}))
    return root


def start_hosts(
    folder: Path,
    hosts: list[str],
    program: str = PROGRAM,
    own: Mapping[str, Mapping[str, str]] = {},
    starts: Mapping[str, str] = {},
    **environ: str,
) -> tuple[list[subprocess.Popen[str]], list[Path]]:
    """Starts the entry of every host with the variables `environ` and those that are its `own`, by START or its own
    of `starts`.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    roots = [lay_out(folder, host, hosts) for host in hosts]
    for root in roots:
        (root / "code" / "train.py").write_text(program)
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-P", "-c", starts.get(root.name, START)),
                *(str(root), str(folder / f"run-{root.name}"), str(port)),
            ],
            env={
                **os.environ,
                "SAGEMAKER_BASE_DIR": str(root),
                "BERTH_RENDEZVOUS_TIMEOUT": "30",
                **environ,
                **own.get(root.name, {}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for root in roots
    ]
    return processes, [root / "output" / "failure" for root in roots]


def run_hosts(folder: Path, hosts: list[str], **environ: str) -> tuple[list[int], list[str], list[Path]]:
    processes, failures = start_hosts(folder, hosts, **environ)
    texts = [process.communicate(timeout=60)[0] for process in processes]
    return [process.returncode for process in processes], texts, failures


def test_two_hosts_run_a_users_train_py_with_its_own_qa_py(tmp_path: Path) -> None:
    codes, texts, failures = run_hosts(tmp_path, ["127.0.0.1", "localhost"])
    assert codes == [0, 0], texts
    assert "hosts 127.0.0.1 own qa ['--epochs', '3']\n" in texts[0]
    assert "hosts localhost own qa ['--epochs', '3']\n" in texts[1]
    assert not any(path.exists() for path in failures)


def test_workers_failure_is_every_hosts_failure(tmp_path: Path) -> None:
    codes, texts, failures = run_hosts(tmp_path, ["127.0.0.1", "localhost"], RAISE="localhost")
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


@pytest.mark.slow
def test_a_log_that_nobody_reads_for_longer_than_the_peer_timeout_ends_no_job(tmp_path: Path) -> None:
    """2.8 MB a host, more than the pipes between a program and the log hold: then the program waits, and all live."""
    hosts = ["127.0.0.1", "localhost"]
    processes, _ = start_hosts(tmp_path, hosts, PRINTS, BERTH_PEER_TIMEOUT="4")
    with contextlib.ExitStack() as stack:
        for process in processes:
            stack.callback(process.kill)
        while len(list(tmp_path.glob("run-*/pids/*"))) < len(hosts):
            assert [process.poll() for process in processes] == [None, None]
            time.sleep(0.05)
        time.sleep(5)  # nobody reads
        assert [process.poll() for process in processes] == [None, None]
        with ThreadPoolExecutor() as pool:
            texts = [said for said, _ in pool.map(lambda process: process.communicate(timeout=60), processes)]
    assert [process.returncode for process in processes] == [0, 0], texts
    for text in texts:
        assert text.count("\nline ") == 40_000
        assert "no sign of life" not in text


WAITS = "import time; print('RUNS', flush=True); time.sleep(60)"
HANDLES = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit("I was told to stop"))
print("RUNS", flush=True)
time.sleep(60)
"""
HAS_HANDLED = """
import logging
try:
    raise ConnectionError("S3 said 503")
except ConnectionError:
    logging.exception("trying again")
""" + HANDLES.replace('"I was told to stop"', "143")


SAVES = """
import os, signal, sys, time
worker = os.environ["SM_CURRENT_HOST"] == "localhost"
def save(number, frame):
    time.sleep(0 if worker else 4)
    open(os.environ["SAGEMAKER_BASE_DIR"] + "/saved", "x").close()
    SENTENCE
    sys.exit(CODE)
signal.signal(signal.SIGTERM, save)
print("RUNS", flush=True)
time.sleep(60)
"""
WRITES = "open(os.environ['BERTH_FAILURE_FILE'], 'w').write('stopped at step 3: go on.')"


def run_and_stop(folder: Path, program: str, told: Sequence[int]) -> tuple[list[int], list[str], list[Path]]:
    """Signals the hosts of `told` (an index for each signal) once all programs run; codes, logs, failure files."""
    processes, failures = start_hosts(folder, ["127.0.0.1", "localhost"], program)
    for process in processes:
        assert process.stdout is not None
        while "RUNS" not in (line := process.stdout.readline()):
            assert line, "it ended before its program ran"
    for index in told:
        processes[index].send_signal(signal.SIGTERM)
        time.sleep(1)
    texts = [process.communicate(timeout=30)[0] for process in processes]
    return [process.returncode for process in processes], texts, failures


@pytest.mark.parametrize(
    ("code", "sentence", "first_lines"),
    [
        (0, "", None),
        (7, "", ["the job was stopped by a signal (SIGTERM) before it was done.", "exit code 7"]),
        (143, WRITES, ["stopped at step 3: go on.", "exit code 143"]),
    ],
    ids=["exits 0", "exits 7", "says itself how far it came"],
)
@pytest.mark.slow
def test_one_hosts_signal_lets_every_host_save(
    tmp_path: Path, code: int, sentence: str, first_lines: list[str] | None
) -> None:
    """The worker, which alone is signalled, ends four seconds before the leader."""
    program = SAVES.replace("SENTENCE", sentence).replace("CODE", str(code))
    codes, texts, failures = run_and_stop(tmp_path, program, (1,))
    assert codes == [code, code], texts
    for host, text, failure in zip(("127.0.0.1", "localhost"), texts, failures, strict=True):
        assert (tmp_path / host / "saved").exists(), text
        assert "SIGTERM: stopping this job; the program has 110 s to save and end" in text
        assert (failure.read_text().splitlines()[:2] if failure.exists() else None) == first_lines


def test_a_second_signal_to_one_host_ends_every_program_at_once(tmp_path: Path) -> None:
    twice = (
        SAVES.replace("SENTENCE", "")
        .replace("0 if worker else 4", "50")
        .replace(
            "def save(number, frame):", "def save(number, frame):\n    signal.signal(signal.SIGTERM, signal.SIG_DFL)"
        )
    )
    began = time.monotonic()
    codes, texts, failures = run_and_stop(tmp_path, twice, (1, 1))
    assert codes == [143, 143], texts
    assert time.monotonic() - began < 20
    assert not list(tmp_path.glob("*/saved"))
    assert {path.read_text().splitlines()[0] for path in failures} == {
        "the job was stopped by a signal (SIGTERM) before it was done."
    }


@pytest.mark.parametrize(
    ("program", "number", "told", "code"),
    [
        (WAITS, signal.SIGTERM, (0, 1), 143),
        (WAITS, signal.SIGTERM, (1,), 143),
        (WAITS, signal.SIGTERM, (0,), 143),
        (WAITS, signal.SIGINT, (0, 1), 143),
        (HANDLES, signal.SIGTERM, (0, 1), 1),
        (HANDLES, signal.SIGTERM, (1,), 1),
        (HAS_HANDLED, signal.SIGTERM, (1,), 143),
    ],
    ids=[
        "every host",
        "the worker",
        "the leader",
        "Ctrl-C",
        "handled by the program",
        "handled on the worker",
        "after an exception",
    ],
)
def test_a_job_that_is_stopped_blames_nobody(
    tmp_path: Path, program: str, number: int, told: tuple[int, ...], code: int
) -> None:
    processes, failures = start_hosts(tmp_path, ["127.0.0.1", "localhost"], program)
    texts = []
    for process in processes:
        assert process.stdout is not None
        while "RUNS" not in (line := process.stdout.readline()):
            assert line, "it ended before its program ran"
    for index in told:
        processes[index].send_signal(number)
    for process in processes:
        texts.append(process.communicate(timeout=30)[0])
    name = signal.Signals(number).name
    sentence = f"the job was stopped by a signal ({name}) before it was done."
    assert [process.returncode for process in processes] == [code, code], texts
    for text, path in zip(texts, failures, strict=True):
        assert path.read_text().splitlines()[:2] == [sentence, f"exit code {code}"]
        assert text.count(sentence) == 1


MPL = "BERTH_DISTRIBUTION must be none, mpi or smddp, not 'mpl'."
BEFORE = "host localhost stopped before all hosts had come: "


def end_within(seconds: float, processes: list[subprocess.Popen[str]], failures: list[Path]) -> list[str]:
    """The first lines of the failure files of hosts that all end in so many seconds, with code 1."""
    began = time.monotonic()
    texts = [process.communicate(timeout=60)[0] for process in processes]
    assert time.monotonic() - began < seconds, texts
    assert [process.returncode for process in processes] == [1] * len(processes), texts
    assert not any("Traceback" in text for text in texts), texts
    return [path.read_text().splitlines()[0] for path in failures]


@pytest.mark.parametrize(
    ("refused", "sentence"), [("127.0.0.1", MPL), ("localhost", BEFORE + MPL)], ids=["the leader", "a worker"]
)
def test_hosts_do_not_wait_for_one_that_is_refused(tmp_path: Path, refused: str, sentence: str) -> None:
    hosts = ["127.0.0.1", "localhost", "127.1"]
    processes, failures = start_hosts(tmp_path, hosts, own={refused: {"BERTH_DISTRIBUTION": "mpl"}})
    assert end_within(15, processes, failures) == [sentence] * 3


def test_hosts_that_are_all_refused_end_together(tmp_path: Path) -> None:
    processes, failures = start_hosts(tmp_path, ["127.0.0.1", "localhost"], BERTH_DISTRIBUTION="mpl")
    assert end_within(15, processes, failures) == [MPL] * 2


@pytest.mark.parametrize(
    ("commands", "reason"),
    [((), "mpirun is not on PATH"), (("mpirun",), "ssh-keygen is not in the image")],
    ids=["mpirun", "sshd"],
)
def test_a_worker_that_lacks_a_command_is_the_reason_on_every_host(
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
        assert line.startswith(BEFORE + reason)


@pytest.mark.slow
def test_a_refused_host_whose_leader_never_comes_says_its_own_reason(tmp_path: Path) -> None:
    processes, failures = start_hosts(
        tmp_path, ["127.0.0.1", "localhost"], BERTH_DISTRIBUTION="mpl", BERTH_RENDEZVOUS_TIMEOUT="10"
    )
    processes[0].kill()
    processes[0].communicate(timeout=60)
    assert end_within(30, processes[1:], failures[1:]) == [MPL]


# The entry on a host of one GPU, in an image whose torch is built for CUDA 13.
ON_A_GPU = START.replace(
    "sys.exit(",
    """from berth.train import entry
from berth.train.planning.hardware import Hardware
entry.probe = lambda: Hardware(1, "13.0", 4, None, ("lo",))
sys.exit(""",
)


def test_a_workers_driver_that_is_too_old_is_the_reason_on_every_host(
    tmp_path: Path, libcuda: Callable[..., Path]
) -> None:
    old = {"FAKE_CUDA_VERSION": "12020", "FAKE_CUDA_DEVICES": "NVIDIA A10G:8.6"}
    old["LD_LIBRARY_PATH"] = str(libcuda(tmp_path / "lib"))
    processes, failures = start_hosts(
        tmp_path, ["127.0.0.1", "localhost"], own={"localhost": old}, starts={"localhost": ON_A_GPU}
    )
    for line in end_within(15, processes, failures):
        assert line.startswith(f"{BEFORE}This image's torch is built for CUDA 13.0, which needs driver 580 or newer")


def on_gpus(tmp_path: Path, library: Path, gpus: int, devices: str) -> tuple[int, str, str]:
    """Exit code, log and failure file of the entry on a host with so many device nodes, whose driver offers others."""
    root = lay_out(tmp_path, "algo-1", ["algo-1"])
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            ON_A_GPU.replace("Hardware(1,", f"Hardware({gpus},"),
            str(root),
            str(tmp_path / "run"),
            "0",
        ],
        env={
            **os.environ,
            "SAGEMAKER_BASE_DIR": str(root),
            "LD_LIBRARY_PATH": str(library),
            "FAKE_CUDA_VERSION": "13000",
            "FAKE_CUDA_DEVICES": devices,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    failure = root / "output" / "failure"
    return done.returncode, done.stdout, failure.read_text() if failure.exists() else ""


def test_ranks_are_as_many_as_the_driver_offers(tmp_path: Path, libcuda: Callable[..., Path]) -> None:
    library = libcuda(tmp_path / "lib")
    code, log, _ = on_gpus(tmp_path / "mig", library, 8, "NVIDIA A100-SXM4-40GB MIG 1g.5gb:8.0")
    assert code == 0, log
    assert "berth: the driver offers 1 of 8 GPUs here (MIG: a process can use one instance)\n" in log
    assert "backend: nccl, over lo: 1 GPUs on each host" in log
    code, _, failure = on_gpus(tmp_path / "lost", library, 2, "NVIDIA A10G:8.6")
    assert code == 1
    assert failure.startswith("The driver offers 1 of the 2 GPUs in this container: look at nvidia-smi and dmesg on ")


def test_idle_gpus_are_named_in_the_first_and_in_the_last_line(tmp_path: Path, libcuda: Callable[..., Path]) -> None:
    code, log, _ = on_gpus(tmp_path, libcuda(tmp_path / "lib"), 2, "NVIDIA A10G:8.6,NVIDIA A10G:8.6")
    assert code == 0, log
    idle = "1 of 2 GPUs may stay idle, because your program runs once per host"
    first, *_, last = log.splitlines()
    assert first.startswith(f"berth: {idle}")
    assert last.startswith(f"berth: the job ends with exit code 0; {idle}")


ASKING = """from berth.runtime.gpu import driver
detect = driver.detect_in_child
def slowly(environ):
    print("asking", flush=True)
    return detect(environ)
driver.detect_in_child = slowly
from berth.train import entry
"""


def test_sigterm_is_heard_while_the_driver_hangs(tmp_path: Path, libcuda: Callable[..., Path]) -> None:
    root = lay_out(tmp_path, "algo-1", ["algo-1"])
    program = ON_A_GPU.replace("from berth.train import entry\n", ASKING)
    hangs = {"LD_LIBRARY_PATH": str(libcuda(tmp_path / "lib")), "FAKE_CUDA_INIT": "hang"}
    running = subprocess.Popen(
        [sys.executable, "-P", "-c", program, str(root), str(tmp_path / "run"), "0"],
        env={**os.environ, "SAGEMAKER_BASE_DIR": str(root), **hangs},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "asking\n"
        time.sleep(0.5)  # the child is inside the driver
        running.terminate()
        began = time.monotonic()
        log, _ = running.communicate(timeout=30)
    finally:
        running.kill()
    assert time.monotonic() - began < 10
    assert running.returncode == 143, log
    assert (root / "output" / "failure").read_text().splitlines()[:2] == [
        "the job was stopped by a signal (SIGTERM) before training began; start it again.",
        "exit code 143",
    ]
    assert "Traceback" not in log


@pytest.fixture
def handlers() -> Iterator[None]:
    """The handlers of this process, again after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_a_signal_stops_the_start_once_and_is_an_event_from_then_on() -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    with pytest.raises(Stopped) as caught, entry._stoppable(events):
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.number == signal.SIGTERM
    signal.raise_signal(signal.SIGTERM)
    assert [events.get(timeout=1), events.get(timeout=1)] == [Signalled(signal.SIGTERM)] * 2


@pytest.mark.usefixtures("handlers")
def test_a_signal_whose_exception_is_swallowed_is_not_lost() -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    with entry._stoppable(events):
        with contextlib.suppress(Exception):
            signal.raise_signal(signal.SIGINT)
    assert events.get(timeout=1) == Signalled(signal.SIGINT)


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
def test_other_commands(arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.dispatch(arguments) == code
    assert text in capsys.readouterr().err


def test_a_command_is_run_instead() -> None:
    run = "import sys; from berth.train.entry import dispatch; sys.exit(dispatch(['sh', '-c', 'echo hello; exit 3']))"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "hello\n")


@pytest.mark.parametrize(("leaves", "note"), [("", True), ("localhost", False)])
def test_a_success_without_a_model_says_so_unless_another_host_has_one(tmp_path: Path, leaves: str, note: bool) -> None:
    hosts = ["127.0.0.1", "localhost"]
    for host in hosts:
        (tmp_path / host / "model").mkdir(parents=True)
    if leaves:
        (tmp_path / leaves / "model/model.pt").write_text("weights")
    processes, failures = start_hosts(tmp_path, hosts)
    last = [process.communicate(timeout=60)[0].splitlines()[-1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert not any(path.exists() for path in failures)
    said = "; /opt/ml/model is empty, so the job leaves no model"
    assert [said in line for line in last] == [note, note], last
