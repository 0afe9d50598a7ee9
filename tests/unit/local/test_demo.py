"""The demo's pure parts: why it fails, the model it starts from."""

import io
import tarfile
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from berth.common.console import progress_bar
from berth.common.errors import UserError
from berth.images.layers import Layer
from berth.images.size import ImageSize
from berth.local import archive, demo


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


def test_the_gold_answers_stand_in_their_contexts() -> None:
    assert [each.gold in each.context for each in demo.QUESTIONS] == [True, True]


def test_the_pretrained_model_is_installed_and_whole() -> None:
    folder = demo.pretrained_model()
    assert archive.model_home(folder, folder) == folder


def test_read_member(tmp_path: Path) -> None:
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("metrics.json")
        member.size = 16
        tar.addfile(member, io.BytesIO(b'{"eval_f1": 59 }'))
    assert demo.read_member(path, "metrics.json") == b'{"eval_f1": 59 }'
    with pytest.raises(UserError, match=r"holds no history\.json"):
        demo.read_member(path, "history.json")


def test_the_bar_of_a_job_that_is_done_is_full() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    with progress_bar(console) as progress:
        demo._progress_sink(progress)("algo-1 | step 310 of 313  loss: 1.5")
        demo._fill(progress)
    assert "313/313" in console.export_text()


def test_the_demo_shows_the_sizes_that_the_command_size_does(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = ImageSize("berth-train:cpu", (Layer("sha256:0", "base", 1_131_000_000, 357_840_000),), ())
    monkeypatch.setattr(demo, "connect", MagicMock())
    monkeypatch.setattr(demo, "kept_size", lambda _, image: measured if image == measured.image else None)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(demo._sizes("berth-train:cpu", "berth-serve:cpu"))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in console.export_text().splitlines()]
    assert [row for row in rows if row] == [
        ["berth-train:cpu", "1131.0", "357.8"],
        ["berth-serve:cpu", "`build.py size` says", "`build.py size` says"],
    ]
    assert measured.weight == "357.8 MB compressed, 1131.0 MB on disk"
