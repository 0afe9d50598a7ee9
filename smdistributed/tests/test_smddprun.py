"""Ranks from the variables of mpirun and torchrun, and `smddprun`, which sets them for a program."""

import subprocess
import sys
from pathlib import Path

import pytest
import rank_jobs

from berth.smdistributed.dataparallel import launch
from berth.smdistributed.ranks import launch_variables, started_by_launcher

MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"}
LEADER = {"MASTER_ADDR": "algo-1", "MASTER_PORT": "7777"}
LOOPBACK = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", **LOOPBACK}
SECOND = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
FIFTH = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ALONE),
        ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, ALONE),
        (TORCHRUN | LEADER, TORCHRUN | LEADER),
        (MPIRUN | LEADER, FIFTH | LEADER),
        (MPIRUN | TORCHRUN, TORCHRUN | LOOPBACK),
        ({"RANK": "1", "WORLD_SIZE": "2"}, SECOND | LOOPBACK),
        (MPIRUN | {"SM_HOSTS": '["algo-1", "algo-2"]'}, FIFTH | LOOPBACK | {"MASTER_ADDR": "algo-1"}),
        (MPIRUN | {"SMDATAPARALLEL_SERVER_ADDR": "algo-9"}, FIFTH | LOOPBACK | {"MASTER_ADDR": "algo-9"}),
    ],
)
def test_launch_variables_of_mpirun_and_torchrun(environ: dict[str, str], expected: dict[str, str]) -> None:
    assert launch_variables(environ) == expected


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"WORLD_SIZE": "2"}, "RANK is not set, and the job has several ranks; start it with mpirun or torchrun."),
        (MPIRUN | {"OMPI_COMM_WORLD_LOCAL_RANK": ""}, "LOCAL_RANK is not set, and the job has several ranks"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', which is not a number; start the job with mpirun or torchrun."),
        (
            MPIRUN | {"SM_HOSTS": "broken"},
            "MASTER_ADDR is not set, and the ranks are on several hosts; set it to the first host's name, with mpirun "
            "-x MASTER_ADDR=NAME.",
        ),
    ],
)
def test_missing_launch_variable_is_an_error(environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(RuntimeError) as error:
        launch_variables(environ)
    assert str(error.value).startswith(sentence)


def test_started_by_launcher() -> None:
    assert not started_by_launcher({})
    assert started_by_launcher({"OMPI_COMM_WORLD_SIZE": "1"})
    assert started_by_launcher({"WORLD_SIZE": "1"})


def smddprun(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "smdistributed.dataparallel.launch", *arguments]
    return subprocess.run(
        command, env=rank_jobs.environment(folder, **more), capture_output=True, text=True, timeout=60
    )


def test_smddprun_starts_program_with_launch_variables(tmp_path: Path) -> None:
    code = (
        "import os, sys; print(os.environ['RANK'], os.environ['SMDATAPARALLEL_LOCAL_RANK'], *sys.argv[1:]); sys.exit(3)"
    )
    process = smddprun(tmp_path, sys.executable, "-c", code, "--epochs", "1", **MPIRUN, **LEADER)
    assert (process.returncode, process.stdout, process.stderr) == (3, "5 1 --epochs 1\n", "")


def test_smddprun_reports_program_that_cannot_start(tmp_path: Path) -> None:
    missing = smddprun(tmp_path, "no-such-program", **MPIRUN)
    assert missing.returncode == 127
    assert missing.stderr == "smddprun: program no-such-program not found; pass a program on PATH, or its path.\n"
    without_address = smddprun(tmp_path, sys.executable, **MPIRUN)
    assert (without_address.returncode, without_address.stderr[:34]) == (2, "smddprun: MASTER_ADDR is not set, ")


def test_smddprun_prints_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert (launch.main([]), launch.main(["--help"])) == (2, 0)
    printed = capsys.readouterr()
    assert printed.out == printed.err == f"{launch.USAGE}\n"
