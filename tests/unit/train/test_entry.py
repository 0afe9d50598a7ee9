"""The whole entry, and the console script `train`, which keeps signals that come before the entry has its handlers.

Two hosts of a job run on this machine; their names are 127.0.0.1 and localhost.
"""

import contextlib
import json
import os
import signal
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
from tests.ports import free_port

pytestmark = pytest.mark.slow

HOSTS = ["127.0.0.1", "localhost"]
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
    """Write one host's /opt/ml; returns its path."""
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
    """Start the entry of every host; returns the processes and the paths of their failure files.

    own: host → variables of this host only. starts: host → code that starts its entry instead of START.
    """
    port = free_port()
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


WAITS = "import time; print('RUNS', flush=True); time.sleep(60)"
HANDLES = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopping"))
print("RUNS", flush=True)
time.sleep(60)
"""
RAISED_BEFORE = """
import logging
try:
    raise ConnectionError("S3 said 503")
except ConnectionError:
    logging.exception("trying again")
""" + HANDLES.replace('"stopping"', "143")


SAVES = """
import os, signal, sys, time
worker = os.environ["SM_CURRENT_HOST"] == "localhost"
def save(number, frame):
    time.sleep(0 if worker else 2)
    open(os.environ["SAGEMAKER_BASE_DIR"] + "/saved", "x").close()
    SENTENCE
    sys.exit(CODE)
signal.signal(signal.SIGTERM, save)
print("RUNS", flush=True)
time.sleep(60)
"""
WRITES = "open(os.environ['BERTH_FAILURE_FILE'], 'w').write('stopped at step 3: go on.')"


def run_and_stop(
    folder: Path, program: str, signalled: Sequence[int], number: int = signal.SIGTERM
) -> tuple[list[int], list[str], list[Path]]:
    """Signal the hosts with these indexes once all programs run; returns exit codes, logs and failure files."""
    processes, failures = start_hosts(folder, HOSTS, program)
    for process in processes:
        while "RUNS" not in (line := process.stdout.readline()):
            assert line, "the entry ended before its program ran"
    for at, index in enumerate(signalled):
        if index in signalled[:at]:
            time.sleep(1)  # two signals that arrive together count as one
        processes[index].send_signal(number)
    texts = [process.communicate(timeout=30)[0] for process in processes]
    return [process.returncode for process in processes], texts, failures


@pytest.mark.parametrize(
    ("code", "sentence", "first_lines"),
    [
        (0, "", None),
        (7, "", ["the job was stopped by a signal (SIGTERM) before it was done.", "exit code 7"]),
        (143, WRITES, ["stopped at step 3: go on.", "exit code 143"]),
    ],
    ids=["exits 0", "exits 7", "writes its own sentence"],
)
def test_signal_to_one_host_lets_every_host_save(
    tmp_path: Path, code: int, sentence: str, first_lines: list[str] | None
) -> None:
    """Only the worker gets the signal. It ends two seconds before the leader."""
    program = SAVES.replace("SENTENCE", sentence).replace("CODE", str(code))
    codes, texts, failures = run_and_stop(tmp_path, program, (1,))
    assert codes == [code, code], texts
    for host, text, failure in zip(HOSTS, texts, failures, strict=True):
        assert (tmp_path / host / "saved").exists(), text
        assert "SIGTERM: stopping this job; the program has 110 s to save and end" in text
        assert (failure.read_text().splitlines()[:2] if failure.exists() else None) == first_lines


def test_second_signal_to_one_host_ends_all_programs_at_once(tmp_path: Path) -> None:
    program = (
        SAVES.replace("SENTENCE", "")
        .replace("0 if worker else 2", "50")
        .replace(
            "def save(number, frame):", "def save(number, frame):\n    signal.signal(signal.SIGTERM, signal.SIG_DFL)"
        )
    )
    began = time.monotonic()
    codes, texts, failures = run_and_stop(tmp_path, program, (1, 1))
    assert codes == [143, 143], texts
    assert time.monotonic() - began < 20
    assert not list(tmp_path.glob("*/saved"))
    assert {path.read_text().splitlines()[0] for path in failures} == {
        "the job was stopped by a signal (SIGTERM) before it was done."
    }


@pytest.mark.parametrize(
    ("program", "number", "signalled", "code"),
    [
        (WAITS, signal.SIGTERM, (0, 1), 143),
        (WAITS, signal.SIGTERM, (1,), 143),
        (WAITS, signal.SIGTERM, (0,), 143),
        (WAITS, signal.SIGINT, (0, 1), 143),
        (HANDLES, signal.SIGTERM, (1,), 1),
        (RAISED_BEFORE, signal.SIGTERM, (1,), 143),
    ],
    ids=[
        "both hosts",
        "worker",
        "leader",
        "Ctrl-C on both",
        "worker's program has a handler",
        "handler after a logged exception",
    ],
)
def test_failure_of_a_stopped_job_names_no_host(
    tmp_path: Path, program: str, number: int, signalled: tuple[int, ...], code: int
) -> None:
    codes, texts, failures = run_and_stop(tmp_path, program, signalled, number)
    name = signal.Signals(number).name
    sentence = f"the job was stopped by a signal ({name}) before it was done."
    assert codes == [code, code], texts
    for text, path in zip(texts, failures, strict=True):
        assert path.read_text().splitlines()[:2] == [sentence, f"exit code {code}"]
        assert text.count(sentence) == 1


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


# Starts the entry on a host with one GPU, in an image whose torch is built for CUDA 13.
ON_A_GPU = START.replace(
    "sys.exit(",
    """from berth.train import entry
from berth.train.planning.hardware import Hardware
entry.probe = lambda: Hardware(1, "13.0", 4, None, ("lo",))
sys.exit(""",
)


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
    root = lay_out(tmp_path, "algo-1", ["algo-1"])
    result = subprocess.run(
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
    return result.returncode, result.stdout, failure.read_text() if failure.exists() else ""


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


HANGING_DRIVER = """from berth.runtime.gpu import driver
detect = driver.detect_in_child
def announce(environ):
    print("detecting", flush=True)
    return detect(environ)
driver.detect_in_child = announce
from berth.train import entry
"""


def test_sigterm_ends_the_entry_while_the_driver_hangs(tmp_path: Path, libcuda: Callable[..., Path]) -> None:
    root = lay_out(tmp_path, "algo-1", ["algo-1"])
    program = ON_A_GPU.replace("from berth.train import entry\n", HANGING_DRIVER)
    hangs = {"LD_LIBRARY_PATH": str(libcuda(tmp_path / "lib")), "FAKE_CUDA_INIT": "hang"}
    running = subprocess.Popen(
        [sys.executable, "-P", "-c", program, str(root), str(tmp_path / "run"), "0"],
        env={**os.environ, "SAGEMAKER_BASE_DIR": str(root), **hangs},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert running.stdout.readline() == "detecting\n"
        time.sleep(0.5)  # time for the child to call the driver
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
    """Restores this process' signal handlers after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_only_the_first_signal_during_the_start_raises() -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    with pytest.raises(Stopped) as caught, entry._stoppable(events):
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.number == signal.SIGTERM
    signal.raise_signal(signal.SIGTERM)
    assert [events.get(timeout=1), events.get(timeout=1)] == [Signalled(signal.SIGTERM)] * 2


@pytest.mark.usefixtures("handlers")
def test_signal_whose_exception_is_swallowed_is_queued() -> None:
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
    processes, failures = start_hosts(tmp_path, HOSTS)
    last = [process.communicate(timeout=60)[0].splitlines()[-1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert not any(path.exists() for path in failures)
    empty = "; /opt/ml/model is empty, so the job leaves no model"
    assert [empty in line for line in last] == [note, note], last


SIGNAL_DURING_IMPORT = """
import importlib.abc, os, signal, sys
class Stopping(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "berth.train.entry":
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Stopping())
from berth.train.command import main
sys.exit(main())
"""


def test_sigterm_while_the_entry_is_imported_is_not_lost(tmp_path: Path) -> None:
    config = tmp_path / "input" / "config"
    config.mkdir(parents=True)
    (config / "hyperparameters.json").write_text(json.dumps({"sagemaker_program": "train.py"}))
    (config / "resourceconfig.json").write_text(json.dumps({"hosts": ["algo-1"], "current_host": "algo-1"}))
    result = subprocess.run(
        [sys.executable, "-P", "-c", SIGNAL_DURING_IMPORT],
        env={**os.environ, "SAGEMAKER_BASE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 128 + signal.SIGTERM, result.stderr
    assert (tmp_path / "output" / "failure").read_text().splitlines()[0] == (
        "the job was stopped by a signal (SIGTERM) before training began; start it again."
    )


def test_other_commands_run_without_blocked_signals() -> None:
    command = ["sh", "-c", "kill -TERM $$; echo 'the signal was blocked'"]
    run = f"import sys; sys.argv[1:] = {command!r}; from berth.train.command import main; main()"
    result = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (-signal.SIGTERM, "")
