"""The image tests that a push runs: which images they test, and how a pass is remembered."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from berth.images.build import image_tests
from berth.images.local_image import LocalImage

TRAIN = LocalImage("berth-train:cpu", "sha256:1", "train", "cpu", derived=False, attrs={})
MINE = LocalImage("mytrain:1", "sha256:2", "train", "cpu", derived=True, attrs={})


class Runs(list[dict[str, Any]]):
    """A fake `subprocess.run`: records the commands; their exit code is `code`."""

    code = 0

    def __call__(self, words: list[str], **options: Any) -> Any:
        self.append({"words": words, **options})
        return SimpleNamespace(returncode=self.code)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs()
    monkeypatch.setattr(image_tests.subprocess, "run", found)
    return found


def test_only_a_pass_is_remembered(runs: Runs, tmp_path: Path) -> None:
    runs.code = 1
    assert (image_tests.run([TRAIN], tmp_path), image_tests.passed_on([TRAIN], tmp_path)) == (1, "")
    runs.code = 0
    assert image_tests.run([TRAIN], tmp_path) == 0
    assert image_tests.passed_on([TRAIN], tmp_path)
    assert image_tests.passed_on([replace(TRAIN, name="another name", attrs={"x": 1})], tmp_path)
    for other in ([replace(TRAIN, id="sha256:9")], [TRAIN, MINE], [replace(TRAIN, derived=True)]):
        assert not image_tests.passed_on(other, tmp_path)


def test_changed_tests_invalidate_a_pass(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_a.py").write_text("1")
    monkeypatch.setattr(image_tests, "_FOLDER", tests)
    image_tests.run([TRAIN], tmp_path / "passed")
    assert image_tests.passed_on([TRAIN], tmp_path / "passed")
    (tests / "test_a.py").write_text("2")
    assert not image_tests.passed_on([TRAIN], tmp_path / "passed")


@pytest.mark.parametrize(
    ("image", "variable"),
    [(TRAIN, None), (MINE, "mytrain:1"), (replace(TRAIN, name="berth-train:build-1"), "berth-train:build-1")],
)
def test_named_image_is_tested(image: LocalImage, variable: str | None, runs: Runs, tmp_path: Path) -> None:
    image_tests.run([image], tmp_path, to_stderr=True)
    (call,) = runs
    assert call["env"].get("BERTH_IMAGE") == variable
    assert ("not kits_own" in call["words"]) == image.derived
    assert call["stdout"] is sys.stderr
