"""Parts of the demo without containers: its verdict, its output, and the pretrained model."""

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from berth.common.errors import UserError
from berth.local import archive, demo
from berth.local.train.job import TrainOutcome


@pytest.mark.parametrize(
    ("f1", "samples", "failed"),
    [
        pytest.param(45.0, 500, [], id="just-good-enough"),
        pytest.param(44.9, 500, ["Held-out F1 is 44.9, below 45"], id="too-low"),
        pytest.param(60.0, 499, ["Only 499 held-out questions"], id="too-few"),
        pytest.param(1.0, 1, ["Only 1 held-out", "Held-out F1 is 1.0"], id="both"),
    ],
)
def test_shortfalls(f1: float, samples: int, failed: list[str]) -> None:
    found = demo.shortfalls({"eval_f1": f1, "eval_samples": samples})
    assert len(found) == len(failed)
    assert all(sentence.startswith(start) for sentence, start in zip(found, failed, strict=True))


def test_pretrained_model_is_installed_and_complete() -> None:
    folder = demo.pretrained_model()
    assert archive.model_home(folder, folder) == folder


def test_read_member(tmp_path: Path) -> None:
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("metrics.json")
        member.size = 16
        tar.addfile(member, io.BytesIO(b'{"eval_f1": 59 }'))
    assert demo.read_member(path, "metrics.json") == b'{"eval_f1": 59 }'
    with pytest.raises(UserError, match=r"has no history\.json"):
        demo.read_member(path, "history.json")


def test_demo_prints_progress_lines_without_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job: Any, *, image: str, log: Any, say: Any) -> TrainOutcome:
        say("Channel train: 1 file(s)")
        for line in ("tasks: train", "step 1 of 2  loss: 4.0", "evaluation 20 % done", "eval_f1 = 50.0"):
            log(f"algo-1 | {line}")
        return TrainOutcome(0, 1.0)

    monkeypatch.setattr(demo, "run_training_job", run)
    console = Console(width=120, record=True, file=io.StringIO())
    demo._train("berth-train:cpu", tmp_path, {}, console)
    assert console.export_text().splitlines() == [
        "Channel train: 1 file(s)",
        "algo-1 | step 1 of 2  loss: 4.0",
        "algo-1 | evaluation 20 % done",
        "algo-1 | eval_f1 = 50.0",
    ]


def test_error_for_missing_pretrained_model_names_make_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match="run `make setup`"):
        demo.pretrained_model()
