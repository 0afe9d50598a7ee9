"""How hosts ended: the first that failed, and the reasons."""

from dataclasses import replace
from pathlib import Path

import pytest

from berth.local.train.host_states import HostState, failure_text, first_failed

ENDED = HostState(0, "2026-11-21T10:00:05Z")


@pytest.mark.parametrize(
    ("states", "first"),
    [
        pytest.param({"algo-1": ENDED, "algo-2": ENDED}, None, id="none"),
        pytest.param(
            {"algo-1": HostState(137, "2026-11-21T10:00:09Z"), "algo-2": HostState(3, "2026-11-21T10:00:04Z")},
            "algo-2",
            id="earlier-end",
        ),
    ],
)
def test_first_failed_is_the_host_that_ended_first(states: dict[str, HostState], first: str | None) -> None:
    assert first_failed(states) == first


@pytest.mark.parametrize(
    ("written", "state", "reason"),
    [
        pytest.param("old", ENDED, "", id="succeeded"),
        pytest.param("ValueError: boom\n", replace(ENDED, exit_code=1), "ValueError: boom", id="failure-file"),
        pytest.param(
            None,
            replace(ENDED, exit_code=137),
            "The container was killed (SIGKILL, exit code 137) before it could say why: `docker events --since 30m "
            "--until 0s --filter event=kill` shows whether somebody ran `docker kill`, and `dmesg` whether the "
            "machine ran out of memory.",
            id="killed",
        ),
        pytest.param(
            "",
            replace(ENDED, exit_code=3),
            "The container ended with exit code 3 and wrote no /opt/ml/output/failure.",
            id="empty-failure-file",
        ),
        pytest.param(
            None,
            replace(ENDED, exit_code=137, out_of_memory=True),
            "Out of memory: the kernel killed a process of this host: use smaller batches.",
            id="out-of-memory",
        ),
    ],
)
def test_failure_text(tmp_path: Path, written: str | None, state: HostState, reason: str) -> None:
    (tmp_path / "output").mkdir()
    if written is not None:
        (tmp_path / "output/failure").write_text(written)
    assert failure_text(tmp_path, state) == reason
