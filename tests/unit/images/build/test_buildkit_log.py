"""Parsing BuildKit's plain output, and the error of a failed build."""

import os
import time
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.images.build import docker_build
from berth.images.build.buildkit_log import Progress
from berth.images.build.docker_build import failure_sentence
from berth.images.build.plan import BuildPlan
from berth.images.pins import pins
from tests.doubles.programs import shell_program

OUTPUT = """\
#1 [internal] load build definition from Dockerfile
#1 DONE 0.0s
#5 [python 1/1] RUN --mount=type=tmpfs,target=/tmp --mount=type=secret,id=ca     sh /tmp/layer/install.sh python
#5 sha256:0a1b
#5 CACHED
#7 [deps-train 1/1] RUN --mount=type=tmpfs,target=/tmp     sh /tmp/layer/install.sh deps
#7 0.214 Resolved 60 packages
#7 12.90 error: hash mismatch
"""


def parsed(text: str) -> Progress:
    progress = Progress()
    for line in text.splitlines():
        progress.feed(line)
    return progress


def test_step_names() -> None:
    steps = parsed(OUTPUT).layers
    assert [(step.name, step.cached, step.seconds) for step in steps] == [
        ("python", True, 0.0),
        ("deps-train", False, None),
    ]


def test_feed_returns_begin_and_end_of_a_step_once() -> None:
    progress = Progress()
    changed = [step.number for step in map(progress.feed, [*OUTPUT.splitlines(), "#7 DONE 14.2s"]) if step]
    assert changed == [5, 5, 7, 7]
    assert progress.steps[7].seconds == 14.2


def test_long_step_name_is_shortened_at_a_word() -> None:
    folders = "ecr/registry images/inventory local serve/engines"
    [step] = parsed(
        f"#9 [kit 6/6] RUN mkdir -p {folders} && /opt/build/bin/pip wheel --quiet --no-deps --no-index .\n"
    ).layers
    assert step.name == f"kit: RUN mkdir -p {folders} && /opt/build/bin/pip wheel --quiet …"


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (("CACHED", "CACHED"), "2 steps, all cached"),
        (("CACHED", "DONE 1.0s"), "2 steps, 1 of them cached"),
        (("DONE 0.1s", "DONE 1.0s"), "2 steps, none cached"),
    ],
)
def test_summary_counts_cached_steps(ends: tuple[str, str], message: str) -> None:
    steps = "".join(f"#{n} [deps {n}/2] RUN x\n#{n} {end}\n" for n, end in enumerate(ends, start=1))
    assert parsed(steps).summary == message


def test_failure_shows_step_and_last_lines() -> None:
    text = OUTPUT + '#7 ERROR: executor failed running [/bin/sh -c "x"]: exit code: 1\n'
    assert failure_sentence(parsed(text), text, Path("/logs/x.log")) == (
        "the step `deps-train` failed; its last lines:\n"
        "    Resolved 60 packages\n"
        "    error: hash mismatch\n"
        '    ERROR: executor failed running [/bin/sh -c "x"]: exit code: 1\n'
        "  The whole log: /logs/x.log"
    )


def test_error_of_a_layer_script_is_the_reason() -> None:
    text = (
        "#5 [python 1/1] RUN x\n"
        "#5 0.1 E: Unable to locate package\n"
        "#5 0.2 berth: error: the base image is Alpine; give another.\n"
        "#5 ERROR: exit code: 1\n"
    )
    assert failure_sentence(parsed(text), text, Path("/l")) == (
        "the base image is Alpine; give another.\n"
        "  The last lines of `python: RUN x`:\n"
        "    E: Unable to locate package\n"
        "    ERROR: exit code: 1\n"
        "  The whole log: /l"
    )


def test_simultaneous_builds_have_separate_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = shell_program(tmp_path / "docker", "echo it failed; exit 1")
    monkeypatch.setattr(pins, "CACHE", tmp_path)
    monkeypatch.setattr(time, "strftime", lambda _: "20261121-080000")
    plan = BuildPlan("train", "cpu", (), ("berth-test:x",), tmp_path)
    for pid in (1234, 1235):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        with pytest.raises(UserError, match=rf"it failed The whole log: .*/20261121-080000-train-cpu-{pid}\.log"):
            docker_build.run_build(plan, client, lambda *_: None)
    assert len(os.listdir(tmp_path / "logs")) == 2


def test_base_counts_as_cached() -> None:
    assert parsed("#5 [base 1/1] FROM berth-base:bookworm\n#5 DONE 0.0s\n").summary == "1 steps, all cached"
