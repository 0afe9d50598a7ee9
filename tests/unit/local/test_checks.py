"""What a container would refuse, refused before there is one."""

from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.local import checks, commands
from berth.local.job_log import JobLog
from berth.local.signals import Interrupts


@pytest.mark.parametrize(
    ("told", "environment", "says"),
    [
        pytest.param(
            {},
            {"BERTH_DISTRBUTION": "mpi"},
            "The variable BERTH_DISTRBUTION is not known: did you mean BERTH_DISTRIBUTION?",
            id="misspelt-variable",
        ),
        pytest.param(
            {"processes_per_host": "none-at-all"},
            {"BERTH_DISTRIBUTION": "mpy"},
            "BERTH_DISTRIBUTION must be none, mpi or smddp, not 'mpy'. Also, processes_per_host must be a whole number "
            "from 1 to 256, not 'none-at-all'.",
            id="all-at-once",
        ),
    ],
)
def test_launch_options(told: dict[str, str], environment: dict[str, str], says: str) -> None:
    with pytest.raises(UserError) as refused:
        checks.check_launch_options(told, environment)
    assert str(refused.value) == says
    checks.check_launch_options({"sagemaker_program": '"train.py"'}, {"BERTH_DISTRIBUTION": "mpi", "MINE": "1"})


def test_data_is_named_by_the_users_own_path(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    with pytest.raises(UserError, match=f"^{tmp_path} holds no data file"):
        checks.check_data({"train": tmp_path}, {})
    for told in ({"do_train": "False"}, {"train_file": "a.csv"}):
        checks.check_data({"train": tmp_path}, told)
    (tmp_path / "b.json").touch()
    (tmp_path / "test").mkdir()
    (tmp_path / "test/a.csv").touch()
    there = {"validation": tmp_path, "test": tmp_path / "test"}
    checks.check_data(there, {})  # nobody predicts unless asked to
    for told, channels in (({}, {"test": tmp_path / "test"}), ({"do_predict": "True"}, there)):
        with pytest.raises(UserError, match=f"^{tmp_path / 'test'} holds no data file"):
            checks.check_data(channels, told)


def test_hosts_that_memory_has_no_room_for_are_refused_with_the_figure() -> None:
    with pytest.raises(UserError) as refused:
        checks.check_memory(1000, 1, 40.0, 19_100.0)
    assert str(refused.value) == (
        "1000 hosts need about 40 GB of memory at the least (40 MB each), and this machine has 19.1 GB free: ask for "
        "477 or fewer with --hosts."
    )
    checks.check_memory(477, 1, 40.0, 19_100.0)
    checks.check_memory(1, 1, 400.0, 100.0)  # one host: the machine itself will tell


def test_so_are_more_processes_than_fit() -> None:
    with pytest.raises(UserError) as refused:
        checks.check_memory(3, 200, 400.0, 19_100.0)
    assert str(refused.value) == (
        "3 hosts with 200 processes each need about 240 GB of memory at the least (400 MB each), and this machine has "
        "19.1 GB free: ask for 47 or fewer in all, with --hosts and BERTH_PROCESSES_PER_HOST."
    )
    with pytest.raises(UserError, match="1 host with 48 processes each needs about 19 GB"):
        checks.check_memory(1, 48, 400.0, 19_100.0)
    checks.check_memory(1, 47, 400.0, 19_100.0)
    assert checks.processes_per_host({}, {"BERTH_PROCESSES_PER_HOST": "8"}) == 8
    assert checks.processes_per_host({"processes_per_host": "4"}, {}) == 4
    assert checks.processes_per_host({}, {}) == 1


def test_an_environment_variable_may_be_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "a=b")
    monkeypatch.delenv("NOT_HERE", raising=False)
    assert commands._variables(["TOKEN", "A=1", "B="]) == {"TOKEN": "a=b", "A": "1", "B": ""}
    with pytest.raises(UserError) as refused:
        commands._variables(["NOT_HERE"])
    assert str(refused.value) == (
        "-e NOT_HERE: there is no variable of that name here: export it, or write NAME=value."
    )


def test_the_program_is_train_py_unless_another_is_named(tmp_path: Path) -> None:
    (tmp_path / "main.py").touch()
    with pytest.raises(UserError) as refused:
        commands._program(tmp_path, None)
    assert str(refused.value) == (
        f"there is no train.py in {tmp_path}: give --entry-point the name of your program, such as main.py."
    )
    assert commands._program(tmp_path, "main.py")["sagemaker_program"] == '"main.py"'
    (tmp_path / "train.py").touch()
    assert commands._program(tmp_path, None)["sagemaker_program"] == '"train.py"'
    assert commands._program(None, None) == {}


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("ValueError: boom", "the job ended with exit code 3: ValueError: boom"),
        ("train.py ended with exit code 3; bad config", "train.py ended with exit code 3; bad config"),
        ("", "the job ended with exit code 3: see its log above."),
    ],
)
def test_an_exit_code_is_said_once(reason: str, line: str) -> None:
    assert commands._ending(3, reason) == line


@pytest.mark.parametrize("word", ["1X=2", "=2", "a b=2", "A-B=1", "A\nB=1", "1X"])
def test_a_name_that_no_variable_can_have_is_refused(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("1X", "2")
    with pytest.raises(UserError, match="no variable has such a name"):
        commands._variables([word])
    assert commands._variables(["_x1=a=b", "HTTP=", "PATH"])["_x1"] == "a=b"


def test_a_jobs_log_and_failures_stay_and_an_earlier_jobs_are_set_aside(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("earlier")
    (tmp_path / "failure-algo-2").write_text("earlier")
    interrupts = Interrupts()
    shown: list[str] = []
    said: list[str] = []
    with JobLog(tmp_path, shown.append, interrupts) as log:
        log.sink_of("algo-1")("step 1")
        interrupts.signum = 2
        log.sink_of("algo-2")("berth: failed: train.py on algo-2 was stopped by SIGTERM")
        said.append(log.keep_failures({"algo-1": "ValueError: boom"}))
    assert shown == ["algo-1 | step 1"]
    assert (tmp_path / "train.log").read_text().splitlines() == [
        "algo-1 | step 1",
        "algo-2 | berth: failed: train.py on algo-2 was stopped by SIGTERM",
    ]
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != "train.log"} == {
        "earlier-train.log": "earlier",
        "failure-algo-1": "ValueError: boom\n",
    }
    assert said == ["failure-algo-1"]
