"""What the commands make of their arguments."""

import json
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest

from berth.contract.metric_definitions import METRIC_DEFINITIONS
from berth.local import commands


def test_run_serve_hands_variables_on(
    command_line: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = MagicMock(return_value=0)
    for name, double in (("connect", MagicMock()), ("require_port", MagicMock()), ("select_image", MagicMock())):
        monkeypatch.setattr(commands, name, double)
    monkeypatch.setattr(commands, "serve_until_interrupted", serve)
    monkeypatch.setenv("HF_TOKEN", "of-here")
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
    assert serve.call_args.args[0].environment == {"BERTH_LOG_FORMAT": "json", "A": "b=c", "HF_TOKEN": "of-here"}
    serve.reset_mock()
    assert command_line.main([*words, "-e", "SAGEMAKER_BIND_TO_PORT=1"]) == 1
    serve.assert_not_called()


def test_metrics_prints_what_an_estimator_takes(command_line: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["metrics"]) == 0
    assert json.loads(capsys.readouterr().out) == METRIC_DEFINITIONS
