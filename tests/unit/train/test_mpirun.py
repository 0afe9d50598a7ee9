"""Which mpirun there is, and what of its words is left out of a log."""

import pytest

from berth.train.mpirun import major_version, of_another, without_notices


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
def test_the_prefix_of_another_open_mpi(mpirun: str, prefix: str, another: bool) -> None:
    assert of_another(mpirun, {"OPAL_PREFIX": prefix}) is another


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
