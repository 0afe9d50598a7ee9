"""The wrapper of a rank in a real process, and its run folder."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from berth.train.launching.runfolder import Program, Relay, RunFolder
from tests.unit.train.launching.wrapped import Wrapped, program, until


def saved_program(folder: RunFolder, code: str, files: Mapping[str, str] = {}, **changes: Any) -> Program:
    for name, text in {**files, "train.py": textwrap.dedent(code)}.items():
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).write_text(text)
    return program(folder, **changes)


class Run(Wrapped):
    """A wrapper that runs `code`. `environ`: mpirun's variables."""

    def __init__(self, tmp_path: Path, code: str, environ: Mapping[str, str] = {}, **changes: Any) -> None:
        folder = RunFolder(tmp_path / "run")
        super().__init__(folder, saved_program(folder, code, **changes), environ)

    @property
    def text(self) -> str:
        return self.log.decode()

    def until_running(self) -> None:
        """Wait until the program has made the file `ready`, the last thing that it does before it waits."""
        until(lambda: self.folder.programs() and (self.folder.path / "ready").exists())


READY = "open('ready', 'w').close()\n"


def mpi(rank: int, size: int = 2, local: int = 0, local_size: int = 1) -> dict[str, str]:
    values = {"RANK": rank, "SIZE": size, "LOCAL_RANK": local, "LOCAL_SIZE": local_size}
    return {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in values.items()}


RANK_VARIABLES = "import os; print(*(os.environ[n] for n in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE')))"
ONE_OF_FOUR = {"environ": mpi(3, 4, 1, 2), "world_size": 4, "ranks_per_host": 2, "prefix_other_ranks": True}


@pytest.mark.parametrize(
    ("code", "changes", "text"),
    [
        ("import os; print(os.environ['SM_CURRENT_HOST'], os.environ.get('RANK'))", {}, "algo-2 None\n"),
        (RANK_VARIABLES, ONE_OF_FOUR, "[rank 3] 3 1 4 2\n"),
    ],
    ids=["without ranks", "one of four ranks"],
)
def test_success(code: str, changes: dict[str, Any], text: str, tmp_path: Path) -> None:
    run = Run(tmp_path, code, **changes)
    assert run.wait() == 0
    assert run.text == text
    assert run.folder.reports() == []
    assert run.folder.programs() == []


def test_exception_becomes_a_report(tmp_path: Path) -> None:
    code = "def f():\n    raise ValueError('boom\\nand why')\nf()\n"
    run = Run(tmp_path, code, mpi(1), world_size=2, ranks_per_host=1, alone=False)
    assert run.wait() == 1
    assert run.report.sentence == "rank 1 on algo-2: ValueError: boom and why (raised at train.py:2 in f)"
    assert (run.report.rank, run.report.host, run.report.code, run.report.echo) == (1, "algo-2", 1, False)
    assert run.report.detail[-2:] == ("ValueError: boom", "and why")
    assert "ValueError: boom\n" in run.text


BOOM = "raise ValueError('boom')"
OWN_SENTENCE = "import os, sys; open(os.environ['BERTH_FAILURE_FILE'], 'w').write('do this.'); sys.exit(42)"
IN_DDP = """
import torch.distributed as dist
def f():
    raise ValueError("boom")
dist.init_process_group("gloo", init_method="file://" + __file__ + ".store", rank=0, world_size=1)
f()
"""
BEFORE_GLOO = """
import atexit, os
atexit.register(os.write, 2, b"gloo: Connection closed by peer\\n")
raise ValueError("boom")
"""


RAISES_SLOWLY = """
import signal, sys, time
def linger(*exception):
    sys.__excepthook__(*exception)
    open("raised", "w").close()
    time.sleep(60)
sys.excepthook = linger
{before}
raise ValueError("no rows")
"""


@pytest.mark.parametrize("through_the_wrapper", [False, True])
def test_signal_after_an_exception_does_not_hide_it(tmp_path: Path, through_the_wrapper: bool) -> None:
    """If another host fails at the same moment, mpirun or the entry may end the rank before its exception does."""
    run = Run(tmp_path, RAISES_SLOWLY.format(before=""), mpi(1), world_size=2, ranks_per_host=1, alone=False)
    until((run.folder.path / "raised").exists)
    ((pid, _),) = run.folder.programs()
    os.kill(run.process.pid if through_the_wrapper else pid, signal.SIGTERM)
    assert run.wait() == 143
    assert run.report.sentence == "rank 1 on algo-2: ValueError: no rows (raised at train.py:9)"
    assert run.report.code == 1  # the exception's exit code
    assert run.report.signalled
    assert not run.report.echo


def test_exception_after_a_signal_is_an_echo(tmp_path: Path) -> None:
    handler = (
        f"signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(ValueError('asked')))\n{READY}time.sleep(60)"
    )
    run = Run(tmp_path, RAISES_SLOWLY.format(before=handler), mpi(1), world_size=2, ranks_per_host=1, alone=False)
    run.until_running()
    run.process.send_signal(signal.SIGTERM)
    until((run.folder.path / "raised").exists)
    run.folder.signal(signal.SIGKILL)
    assert run.wait() == 137
    assert run.report.echo
    assert "was killed by SIGKILL" in run.report.sentence


# Files with the names and roles of mpi4py's, which needs an MPI library. The image tests run the real one.
# Files with the names and roles of mpi4py's, which needs an MPI library. The image tests run the real one.
RUNNER = {
    "mpi4py/__init__.py": "",
    "mpi4py/__main__.py": "from mpi4py.run import main\nmain()\n",
    "mpi4py/run.py": "import runpy, sys\ndef main():\n    runpy.run_path(sys.argv[1], run_name='__main__')\n",
    "inner": "raise ValueError('boom')\n",
}
UNDER_RUNNER = {"files": RUNNER, "command": (sys.executable, "-m", "mpi4py", "train.py")}
TWO_RANKS = {"world_size": 2, "ranks_per_host": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "changes", "exit_code", "sentence"),
    [
        (BOOM, {}, 1, "ValueError: boom (raised at train.py:1)"),
        (BOOM, {"alone": False}, 1, "algo-2: ValueError: boom (raised at train.py:1)"),
        # Once the process group has started, torch puts `[rank0]: ` before every line of an exception.
        (IN_DDP, {"environ": mpi(0), **TWO_RANKS}, 1, "ValueError: boom (raised at train.py:4 in f)"),
        ("import runpy; runpy.run_path('inner')", UNDER_RUNNER, 1, "ValueError: boom (raised at inner:1)"),
        (BEFORE_GLOO, {}, 1, "ValueError: boom"),
        (OWN_SENTENCE, {}, 42, "do this."),
        ("import os; os.kill(os.getpid(), 9)", {}, 137, "train.py on algo-2 was killed by SIGKILL"),
        ("", {"command": ("/no/such/program",)}, 1, "train.py could not be started"),
        (
            "print('runs')",
            {"environ": mpi(0, size=1), **TWO_RANKS},
            1,
            "mpirun started 1 rank, 1 on algo-2, but the plan says 2 with 1 on each host",
        ),
        ("print('runs')", TWO_RANKS, 1, "the rank was started without mpirun's variables"),
    ],
    ids=[
        "exception",
        "exception on one of several hosts",
        "exception in a process group",
        "exception under mpi4py's runner",
        "exception before an error of gloo",
        "own sentence",
        "SIGKILL",
        "no program",
        "too few ranks",
        "no mpirun",
    ],
)
def test_failure_is_reported(tmp_path: Path, code: str, changes: dict[str, Any], exit_code: int, sentence: str) -> None:
    run = Run(tmp_path, code, **changes)
    assert run.wait() == exit_code
    assert run.report.sentence.startswith(sentence)
    assert run.report.code == exit_code
    assert not run.report.echo


SIGNALLED = """
import signal, subprocess, sys, time
def stop(number, frame):
    print("got", number)
    sys.exit(5)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGUSR1, stop)
open("ready", "w").close()
time.sleep(30)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signal_to_the_wrapper_reaches_the_program_once(tmp_path: Path, number: int) -> None:
    run = Run(tmp_path, SIGNALLED)
    run.until_running()
    run.process.send_signal(number)
    assert run.wait() == 5
    assert run.text == f"got {number}\n"
    assert run.report.echo


def test_signal_during_the_start_reaches_the_program(tmp_path: Path) -> None:
    wrapper = """
    import os, signal, sys
    from berth.train.launching import rank
    rank._die_with_parent = lambda: os.kill(os.getppid(), signal.SIGTERM)
    sys.exit(rank.main(sys.argv[1:]))
    """
    folder = RunFolder(tmp_path / "run")
    folder.write_program(saved_program(folder, "import time; time.sleep(5)"))
    (folder.path / "output").unlink()  # without a reader, opening it would wait
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(wrapper), str(folder.path)], check=False, timeout=20)
    assert result.returncode == 128 + signal.SIGTERM


def test_run_folder_signals_the_program(tmp_path: Path) -> None:
    run = Run(tmp_path, SIGNALLED)
    run.until_running()
    assert len(run.folder.signal(signal.SIGTERM)) == 1
    assert run.wait() == 5
    assert not run.report.echo


def test_signal_reaches_the_children_of_a_shell_program(tmp_path: Path) -> None:
    run = Run(tmp_path, SIGNALLED, command=("bash", "-c", f"{sys.executable} train.py; echo never"), shell=True)
    run.until_running()
    run.folder.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert "got 15\n" in run.text
    assert "never" not in run.text


SAVES = """
import signal, sys, time
def save(number, frame):
    time.sleep(3)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("runs", flush=True)
open("ready", "w").close()
time.sleep(30)
"""


@pytest.mark.slow
def test_child_of_a_shell_has_time_to_save(tmp_path: Path) -> None:
    run = Run(tmp_path, SAVES, command=("bash", "-c", f"{sys.executable} train.py\necho never"), shell=True)
    run.until_running()
    run.folder.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert run.text == "runs\nsaved\n"


# A rank of torchrun, which forwards SIGTERM and waits 30 s.
RANKS = SAVES.replace('"saved"', 'os.environ["RANK"] + " saved\\n", end=""').replace("import ", "import os, ")


@pytest.mark.slow
def test_stop_reaches_each_rank_of_torchrun_in_a_shell(tmp_path: Path) -> None:
    torchrun = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2 train.py"
    run = Run(tmp_path, RANKS, command=("bash", "-c", f"{torchrun}\necho never"), shell=True)
    # The newlines are not counted: each rank writes its own separately, so lines of two ranks may mix.
    until(lambda: run.log.count(b"runs") == 2)
    run.folder.signal(signal.SIGTERM)
    assert run.process.wait(timeout=60) == 143
    run.wait()
    assert {"0 saved", "1 saved"} <= set(run.text.splitlines()), run.text
    assert "never" not in run.text


def test_program_is_killed_with_its_wrapper(tmp_path: Path) -> None:
    run = Run(tmp_path, f"import time\n{READY}time.sleep(30)")
    run.until_running()
    ((pid, _),) = run.folder.programs()
    run.process.kill()
    run.wait()
    until(lambda: not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text())


@pytest.mark.slow
def test_wrapper_does_not_wait_for_a_background_child(tmp_path: Path) -> None:
    run = Run(tmp_path, "import subprocess; subprocess.Popen(['sleep', '30']); print('done')")
    begin = time.monotonic()
    assert run.wait() == 0
    assert time.monotonic() - begin < 8
    assert run.text == "done\n"


@pytest.mark.slow
def test_lines_of_two_ranks_stay_whole(tmp_path: Path) -> None:
    code = """
    import os, sys
    rank = os.environ["RANK"]
    for number in range(2000):
        print(f"<{rank}{'x' * (number % 300)}>")
    print(f"<{rank}{'y' * 20000}>", file=sys.stderr)
    """
    run = Run(tmp_path, code, mpi(0), world_size=2, ranks_per_host=1)
    other = subprocess.Popen(run.process.args, env={**os.environ, **mpi(1)})
    assert other.wait(timeout=90) == 0
    assert run.wait() == 0
    lines = run.text.splitlines()
    assert len(lines) == 4002
    assert all(line[0] == "<" and line[-1] == ">" and line.count("<") == 1 for line in lines)


def test_run_folder_is_private_and_is_removed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_program(program(folder))
    assert folder.path.stat().st_mode & 0o077 == 0
    assert (folder.path / "program.json").stat().st_mode & 0o077 == 0
    assert json.loads((folder.path / "program.json").read_text())["host"] == "algo-2"
    folder.remove()
    assert not folder.path.exists()


def test_relay_copies_the_rest_when_it_is_closed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    copied: list[bytes] = []
    relay = Relay(folder, copied.append)
    (folder.path / "output").write_bytes(b"a\nb")
    relay.close()
    assert b"".join(copied) == b"a\nb"
