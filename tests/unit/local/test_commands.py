"""The commands of local/ pass on their arguments and print results."""

from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest

from berth.common.errors import UserError
from berth.images.local_image import LocalImage
from berth.local import commands
from berth.local.train.job import TrainingJob, TrainOutcome

IMAGE = LocalImage("berth-train:cpu", "sha256:aa", "train", "cpu", derived=False, attrs={"Config": {}})


def test_run_serve_passes_variables_to_the_container(
    command_line: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = MagicMock(return_value=0)
    for name, double in (
        ("connect", MagicMock()),
        ("require_port", MagicMock()),
        ("select_image", MagicMock(return_value=IMAGE)),
    ):
        monkeypatch.setattr(commands, name, double)
    monkeypatch.setattr(commands, "serve_until_interrupted", serve)
    monkeypatch.setenv("HF_TOKEN", "from-the-shell")
    words = [
        "run",
        "serve",
        "--model",
        str(tmp_path),
        "-e",
        "BERTH_LOG_FORMAT=json",
        "--env",
        "A=b=c",
        "-e",
        "HF_TOKEN",
    ]
    assert command_line.main(words) == 0
    assert serve.call_args.args[0].environment == {"BERTH_LOG_FORMAT": "json", "A": "b=c", "HF_TOKEN": "from-the-shell"}
    serve.reset_mock()
    assert command_line.main([*words, "-e", "SAGEMAKER_BIND_TO_PORT=1"]) == 1
    serve.assert_not_called()


@pytest.mark.parametrize(
    ("watched", "words", "screen"),
    [(True, [], True), (True, ["--plain"], False), (False, [], False)],
    ids=["terminal", "plain", "file"],
)
def test_run_train_uses_live_screen_on_a_terminal_unless_plain(
    watched: bool,
    words: list[str],
    screen: bool,
    command_line: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_job = MagicMock(return_value=TrainOutcome(0, 1.0))
    on_screen, in_lines = MagicMock(side_effect=run_job), MagicMock(side_effect=run_job)
    monkeypatch.setattr(commands, "connect", MagicMock())
    monkeypatch.setattr(commands, "select_image", MagicMock(return_value=IMAGE))
    monkeypatch.setattr(commands, "is_watched", lambda: watched)
    monkeypatch.setattr(commands, "run_on_screen", on_screen)
    monkeypatch.setattr(commands, "run_training_job", in_lines)
    (tmp_path / "train.py").touch()
    command = ["run", "train", "--code", str(tmp_path), "--output", str(tmp_path / "out"), *words]
    assert command_line.main(command) == 0
    assert (on_screen.call_count, in_lines.call_count) == ((1, 0) if screen else (0, 1))


def test_failure_reason_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("algo-1 | ValueError: boom", "algo-2 | berth: failed: ValueError: boom", "algo-1 | failed: mine"):
        commands._print_unless_reason(line)
    assert capsys.readouterr().out.splitlines() == ["algo-1 | ValueError: boom", "algo-1 | failed: mine"]
    with pytest.raises(UserError, match=r"^the job ended with exit code 1: boom$") as failed:
        commands._report(TrainingJob({}, Path("out")), TrainOutcome(1, 1.0, reason="boom"))
    assert failed.value.exit_code == 1


@pytest.mark.parametrize(
    ("built_from", "derived", "reported"),
    [("here", False, False), ("0123456789ab", False, True), ("other", True, False)],
)
def test_image_from_another_commit_is_reported(
    built_from: str, derived: bool, reported: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "read_revision", lambda root: "here")
    attrs_of_image = {"Config": {"Labels": {"org.opencontainers.image.revision": built_from}}}
    commands._say_other_build(LocalImage("x", "sha256:aa", "serve", "cu130", derived=derived, attrs=attrs_of_image))
    lines = capsys.readouterr().err.replace("\n", " ")
    assert (f"was built from {built_from}, and this checkout is at here" in lines) == reported
    assert ("`python build.py build serve --profile cu130`" in lines) == reported
