"""The rank wrapper and its run folder, run for real."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from berth.contract.errors import JobError
from berth.train.launching.rank import check_rank
from berth.train.launching.runfolder import Program, Relay, RunFolder
from tests.unit.train.launching.wrapped import Wrapped, program, until


def written(folder: RunFolder, code: str, files: Mapping[str, str] = {}, **changes: Any) -> Program:
    for name, text in {**files, "train.py": textwrap.dedent(code)}.items():
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).write_text(text)
    return program(folder, **changes)


class Run(Wrapped):
    """The wrapper of `code`, with variables of mpirun's."""

    def __init__(self, tmp_path: Path, code: str, environ: Mapping[str, str] = {}, **changes: Any) -> None:
        folder = RunFolder(tmp_path / "run")
        super().__init__(folder, written(folder, code, **changes), environ)

    @property
    def text(self) -> str:
        return self.log.decode()

    def until_running(self) -> None:
        """The program has made the file `ready`, as the last thing before it waits."""
        until(lambda: self.folder.programs() and (self.folder.path / "ready").exists())


READY = "open('ready', 'w').close()\n"


def mpi(rank: int, size: int = 2, local: int = 0, local_size: int = 1) -> dict[str, str]:
    values = {"RANK": rank, "SIZE": size, "LOCAL_RANK": local, "LOCAL_SIZE": local_size}
    return {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in values.items()}


def test_good_end(tmp_path: Path) -> None:
    run = Run(tmp_path, "import os; print('hello from', os.environ['SM_CURRENT_HOST'], os.environ.get('RANK'))")
    assert run.wait() == 0
    assert run.text == "hello from algo-2 None\n"
    assert run.folder.reports() == []
    assert run.folder.programs() == []


def test_rank_variables_and_prefix(tmp_path: Path) -> None:
    code = "import os; print(*(os.environ[n] for n in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE')))"
    run = Run(tmp_path, code, mpi(3, 4, 1, 2), world_size=4, ranks_per_host=2, prefix_other_ranks=True)
    assert run.wait() == 0
    assert run.text == "[rank 3] 3 1 4 2\n"


def test_exception_becomes_a_report(tmp_path: Path) -> None:
    code = "def f():\n    raise ValueError('boom\\nand why')\nf()\n"
    run = Run(tmp_path, code, mpi(1), world_size=2, ranks_per_host=1, alone=False)
    assert run.wait() == 1
    assert run.report.sentence == "rank 1 on algo-2: ValueError: boom and why (raised at train.py:2 in f)"
    assert (run.report.rank, run.report.host, run.report.code, run.report.echo) == (1, "algo-2", 1, False)
    assert run.report.detail[-2:] == ("ValueError: boom", "and why")
    assert "ValueError: boom\n" in run.text


DIES_SLOWLY = """
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
def test_a_signal_that_finds_a_program_dying_of_an_exception_hides_it_not(
    tmp_path: Path, through_the_wrapper: bool
) -> None:
    """Another host is lost at the same moment: mpirun or our own entry ends the rank before its exception has."""
    run = Run(tmp_path, DIES_SLOWLY.format(before=""), mpi(1), world_size=2, ranks_per_host=1, alone=False)
    until((run.folder.path / "raised").exists)
    ((pid, _),) = run.folder.programs()
    os.kill(run.process.pid if through_the_wrapper else pid, signal.SIGTERM)
    assert run.wait() == 143
    assert run.report.sentence == "rank 1 on algo-2: ValueError: no rows (raised at train.py:9)"
    assert run.report.code == 1  # that of its exception, and the job's
    assert run.report.signalled
    assert not run.report.echo


def test_an_exception_that_a_signal_caused_explains_nothing(tmp_path: Path) -> None:
    handler = (
        f"signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(ValueError('asked')))\n{READY}time.sleep(60)"
    )
    run = Run(tmp_path, DIES_SLOWLY.format(before=handler), mpi(1), world_size=2, ranks_per_host=1, alone=False)
    run.until_running()
    run.process.send_signal(signal.SIGTERM)
    until((run.folder.path / "raised").exists)
    run.folder.signal(signal.SIGKILL)
    assert run.wait() == 137
    assert run.report.echo
    assert "was killed by SIGKILL" in run.report.sentence


@pytest.mark.slow
def test_exception_of_a_ddp_program_becomes_a_report(tmp_path: Path) -> None:
    """Once the process group has started, torch puts `[rank0]: ` before every line of an exception."""
    code = """
    import torch.distributed as dist
    def f():
        raise ValueError("boom")
    dist.init_process_group("gloo", init_method="file://" + __file__ + ".store", rank=0, world_size=1)
    f()
    """
    run = Run(tmp_path, code, mpi(0), world_size=2, ranks_per_host=1)
    assert run.wait() == 1
    assert "[rank0]: ValueError: boom" in run.text, "the log is as torch wrote it"
    assert run.report.sentence == "ValueError: boom (raised at train.py:4 in f)"


@pytest.mark.parametrize(
    ("changes", "place", "sentence"),
    [
        ({}, {}, "ValueError: boom (raised at train.py:1)"),
        ({"alone": False}, {}, "algo-2: ValueError: boom (raised at train.py:1)"),
        (
            {"alone": False, "world_size": 2, "ranks_per_host": 1},
            mpi(1),
            "rank 1 on algo-2: ValueError: boom (raised at train.py:1)",
        ),
    ],
    ids=["alone", "one of several hosts", "one of several ranks"],
)
def test_a_failure_says_where_it_was_unless_there_is_one_place(
    tmp_path: Path, changes: dict[str, Any], place: dict[str, str], sentence: str
) -> None:
    run = Run(tmp_path, "raise ValueError('boom')", place, **changes)
    assert run.wait() == 1
    assert run.report.sentence == sentence


# As mpi4py's own are laid out, which needs an MPI library; the images' tests run the real one.
RUNNER = {
    "mpi4py/__init__.py": "",
    "mpi4py/__main__.py": "from mpi4py.run import main\nmain()\n",
    "mpi4py/run.py": "import runpy, sys\ndef main():\n    runpy.run_path(sys.argv[1], run_name='__main__')\n",
}


def test_the_place_of_a_failure_under_mpi4pys_runner(tmp_path: Path) -> None:
    code = """
    import runpy
    runpy.run_path("inner")
    """
    files = {**RUNNER, "inner": "raise ValueError('boom')\n"}
    run = Run(tmp_path, code, command=(sys.executable, "-m", "mpi4py", "train.py"), files=files)
    assert run.wait() == 1
    assert run.report.sentence == "ValueError: boom (raised at inner:1)"


def test_what_other_threads_write_behind_an_exception_does_not_make_it_an_echo(tmp_path: Path) -> None:
    code = """
    import atexit, os
    atexit.register(os.write, 2, b"gloo: Connection closed by peer\\n")
    raise ValueError("boom")
    """
    run = Run(tmp_path, code)
    assert run.wait() == 1
    assert not run.report.echo


def test_exit_code_and_own_sentence(tmp_path: Path) -> None:
    code = "import os, sys; open(os.environ['BERTH_FAILURE_FILE'], 'w').write('do this.'); sys.exit(42)"
    run = Run(tmp_path, code)
    assert run.wait() == 42
    assert (run.report.sentence, run.report.code) == ("do this.", 42)


def test_killed_program(tmp_path: Path) -> None:
    run = Run(tmp_path, "import os; os.kill(os.getpid(), 9)")
    assert run.wait() == 137
    assert run.report.sentence.startswith("train.py on algo-2 was killed by SIGKILL")


def test_program_that_is_not_there(tmp_path: Path) -> None:
    run = Run(tmp_path, "", command=("/no/such/program",))
    assert run.wait() == 1
    assert run.report.sentence.startswith("train.py could not be started")


def test_wrong_world_size(tmp_path: Path) -> None:
    run = Run(tmp_path, "print('trained alone')", mpi(0, size=1), world_size=2, ranks_per_host=1)
    assert run.wait() == 1
    assert run.report.sentence.startswith(
        "mpirun started 1 ranks, 1 on algo-2, but the plan says 2 with 1 on each host"
    )
    assert run.text == ""


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


def test_signal_that_comes_while_the_program_starts_reaches_it(tmp_path: Path) -> None:
    wrapper = """
    import os, signal, sys
    from berth.train.launching import rank
    rank._die_with_parent = lambda: os.kill(os.getppid(), signal.SIGTERM)
    sys.exit(rank.main(sys.argv[1:]))
    """
    folder = RunFolder(tmp_path / "run")
    folder.write_program(written(folder, "import time; time.sleep(5)"))
    (folder.path / "output").unlink()  # nobody reads it here
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(wrapper), str(folder.path)], check=False, timeout=20)
    assert ended.returncode == 128 + signal.SIGTERM


def test_signal_through_the_run_folder(tmp_path: Path) -> None:
    run = Run(tmp_path, SIGNALLED)
    run.until_running()
    assert len(run.folder.signal(signal.SIGTERM)) == 1
    assert run.wait() == 5
    assert not run.report.echo


def test_shell_program_takes_its_children_along(tmp_path: Path) -> None:
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
def test_what_a_shell_ran_has_time_to_save(tmp_path: Path) -> None:
    run = Run(tmp_path, SAVES, command=("bash", "-c", f"{sys.executable} train.py\necho never"), shell=True)
    run.until_running()
    run.folder.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert run.text == "runs\nsaved\n"


# Each rank of torchrun's, which passes SIGTERM on and waits 30 s for it.
RANKS = SAVES.replace('"saved"', 'os.environ["RANK"] + " saved\\n", end=""').replace("import ", "import os, ")


@pytest.mark.slow
def test_torchrun_in_a_shell_passes_a_stop_on_to_each_rank(tmp_path: Path) -> None:
    torchrun = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2 train.py"
    run = Run(tmp_path, RANKS, command=("bash", "-c", f"{torchrun}\necho never"), shell=True)
    until(lambda: run.log.count(b"runs\n") == 2)
    run.folder.signal(signal.SIGTERM)
    assert run.process.wait(timeout=60) == 143
    run.wait()
    assert {"0 saved", "1 saved"} <= set(run.text.splitlines()), run.text
    assert "never" not in run.text


def test_program_dies_with_its_wrapper(tmp_path: Path) -> None:
    run = Run(tmp_path, f"import time\n{READY}time.sleep(30)")
    run.until_running()
    ((pid, _),) = run.folder.programs()
    run.process.kill()
    run.wait()
    until(lambda: not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text())


@pytest.mark.slow
def test_child_left_behind_does_not_hold_the_job(tmp_path: Path) -> None:
    run = Run(tmp_path, "import subprocess; subprocess.Popen(['sleep', '30']); print('done')")
    begin = time.monotonic()
    assert run.wait() == 0
    assert time.monotonic() - begin < 8
    assert run.text == "done\n"


def test_lines_of_ranks_stay_whole(tmp_path: Path) -> None:
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


def test_run_folder_is_private_and_goes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_program(program(folder))
    assert folder.path.stat().st_mode & 0o077 == 0
    assert (folder.path / "program.json").stat().st_mode & 0o077 == 0
    assert json.loads((folder.path / "program.json").read_text())["host"] == "algo-2"
    folder.remove()
    assert not folder.path.exists()


def test_rank_without_mpirun(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="without mpirun's variables"):
        check_rank(program(RunFolder(tmp_path / "run"), world_size=2, ranks_per_host=1), None)


def test_relay_passes_on_what_came_before_its_end(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    got: list[bytes] = []
    relay = Relay(folder, got.append)
    writer = threading.Thread(target=lambda: (folder.path / "output").write_bytes(b"a\nb\n"))
    writer.start()
    writer.join()
    relay.close()
    assert b"".join(got) == b"a\nb\n"
