"""Finding mpirun and its parameters, and reading its output."""

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
    ("mpirun", "prefix", "foreign"),
    [
        ("/opt/berth/bin/mpirun", "/opt/berth", False),
        ("/usr/bin/mpirun", "/opt/berth", True),
        ("/opt/amazon/openmpi/bin/mpirun", "/opt/amazon/openmpi5", True),
        ("/usr/bin/mpirun", "", False),
    ],
)
def test_has_foreign_prefix(mpirun: str, prefix: str, foreign: bool) -> None:
    assert has_foreign_prefix(mpirun, {"OPAL_PREFIX": prefix}) is foreign


def test_image_parameters(tmp_path: Path) -> None:
    (tmp_path / "ompi/etc").mkdir(parents=True)
    (tmp_path / "home/.openmpi").mkdir(parents=True)
    installed = tmp_path / "ompi/etc/openmpi-mca-params.conf"
    installed.write_text("# btl_tcp_if_include = x\nbtl_tcp_if_exclude = lo\n\nno parameter\n plm_rsh_agent=rsh\n")
    own = tmp_path / "home/.openmpi/mca-params.conf"
    own.write_text("plm_rsh_agent = ssh -v\n")
    parameters = image_parameters(str(tmp_path / "ompi/bin/mpirun"), tmp_path / "home")
    assert parameters == {
        "btl_tcp_if_exclude": UserSetting("lo", f"{installed} sets"),
        "plm_rsh_agent": UserSetting("ssh -v", f"{own} sets"),
    }
    assert image_parameters("", tmp_path) == {}


def test_notices_about_failed_ranks_are_removed() -> None:
    edge = "-" * 74
    abort = [edge, "Primary job  terminated normally, but 1 process returned", "a non-zero exit code.", edge]
    first = [edge, "mpirun detected that one or more processes exited with non-zero status", "", "  Exit code: 1", edge]
    warning = [edge, "WARNING: No preset parameters were found", "", "  Local host: algo-1", edge]
    runner = [edge, "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD", "with errorcode 1.", edge]
    output = ["a line", "", *warning, *abort, *first, *runner, "the end"]
    assert list(without_notices(output)) == ["a line", *filter(None, warning), "the end"]
    # Lines after an edge are kept if the frame never ends.
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
def test_says_abort(line: str, aborts: bool) -> None:
    assert says_abort(line) is aborts


def test_abort_sentence_is_the_text_of_the_frame() -> None:
    edge = "-" * 74
    before = [edge, "Two mutually-exclusive MCA variables were specified.", edge]
    frame = ["Some processes are unable to reach each other.", "", "Your MPI job is now going to abort; sorry."]
    sentence = abort_sentence([*before, f" {edge}", *frame])
    assert sentence.startswith(
        "mpirun aborts the job: Some processes are unable to reach each other. Your MPI job is now going to abort; "
        "sorry.; correct the network settings"
    )
    assert abort_sentence(["Your MPI job will abort now."]) == "mpirun aborts the job: Your MPI job will abort now."
    assert len(abort_sentence([edge, "x" * 2000, frame[-1]])) < 800
