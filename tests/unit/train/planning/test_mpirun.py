"""Which mpirun there is, and what of its words is left out of a log."""

from pathlib import Path

import pytest

from berth.train.planning.mpirun import (
    abort_sentence,
    has_foreign_prefix,
    image_parameters,
    major_version,
    says_abort,
    without_notices,
)
from berth.train.planning.mpirun_settings import UserSetting


@pytest.mark.parametrize(
    ("text", "major"),
    [("mpirun (Open MPI) 4.1.8\n\nReport bugs", 4), ("mpirun (Open MPI) 5.0.11", 5), ("HYDRA build", 0)],
)
def test_major_version(text: str, major: int) -> None:
    assert major_version(text) == major


@pytest.mark.parametrize(
    ("mpirun", "prefix", "another"),
    [
        ("/opt/berth/bin/mpirun", "/opt/berth", False),
        ("/usr/bin/mpirun", "/opt/berth", True),
        ("/opt/amazon/openmpi/bin/mpirun", "/opt/amazon/openmpi5", True),
        ("/usr/bin/mpirun", "", False),
    ],
)
def test_the_prefix_has_foreign_prefix_open_mpi(mpirun: str, prefix: str, another: bool) -> None:
    assert has_foreign_prefix(mpirun, {"OPAL_PREFIX": prefix}) is another


def test_the_parameters_of_the_images_files(tmp_path: Path) -> None:
    (tmp_path / "ompi/etc").mkdir(parents=True)
    (tmp_path / "home/.openmpi").mkdir(parents=True)
    installed = tmp_path / "ompi/etc/openmpi-mca-params.conf"
    installed.write_text("# btl_tcp_if_include = x\nbtl_tcp_if_exclude = lo\n\nno parameter\n plm_rsh_agent=rsh\n")
    own = tmp_path / "home/.openmpi/mca-params.conf"
    own.write_text("plm_rsh_agent = ssh -v\n")
    found = image_parameters(str(tmp_path / "ompi/bin/mpirun"), tmp_path / "home")
    assert found == {
        "btl_tcp_if_exclude": UserSetting("lo", f"{installed} sets"),
        "plm_rsh_agent": UserSetting("ssh -v", f"{own} sets"),
    }
    assert image_parameters("", tmp_path) == {}


def test_what_mpirun_says_of_a_rank_that_ended_badly_is_left_to_the_rank() -> None:
    edge = "-" * 74
    abort = [edge, "Primary job  terminated normally, but 1 process returned", "a non-zero exit code.", edge]
    first = [edge, "mpirun detected that one or more processes exited with non-zero status", "", "  Exit code: 1", edge]
    warning = [edge, "WARNING: No preset parameters were found", "", "  Local host: algo-1", edge]
    runner = [edge, "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD", "with errorcode 1.", edge]
    said = ["a line", "", *warning, *abort, *first, *runner, "the end"]
    assert list(without_notices(said)) == ["a line", *filter(None, warning), "the end"]
    # A frame that never closes is no reason to swallow it.
    assert list(without_notices([edge, "mpirun was killed"])) == [edge, "mpirun was killed"]


@pytest.mark.parametrize(
    ("line", "aborts"),
    [
        ("Your MPI job is now going to abort; sorry.", True),
        ("*** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,", True),
        ("Your MPI job will abort now. Please select another value for", True),
        ("The job will now be aborted.  Please check your code and/or", True),
        ("attempting to launch so we are aborting.", True),
        ("It is likely that your MPI job will now either abort or experience", False),
        ("unusual; your job may behave unpredictably (and/or abort) after this.", False),
        ("MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD", False),
        ("NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.", False),
    ],
)
def test_a_line_that_says_that_the_job_is_aborted(line: str, aborts: bool) -> None:
    assert says_abort(line) is aborts


def test_why_mpirun_aborts_is_what_its_frame_says() -> None:
    edge = "-" * 74
    before = [edge, "Two mutually-exclusive MCA variables were specified.", edge]
    frame = ["Some processes are unable to reach each other.", "", "Your MPI job is now going to abort; sorry."]
    said = abort_sentence([*before, f" {edge}", *frame])
    assert said.startswith(
        "mpirun aborts the job: Some processes are unable to reach each other. Your MPI job is now going to abort; "
        "sorry.; correct the network settings"
    )
    assert abort_sentence(["Your MPI job will abort now."]) == "mpirun aborts the job: Your MPI job will abort now."
    assert len(abort_sentence([edge, "x" * 2000, frame[-1]])) < 800
