"""`build.py clean`: what it removes, what it keeps, and why."""

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from berth.common import engine, labels, owner
from berth.images import clean, commands
from tests.doubles.programs import git

ME = owner.this_process()


@pytest.fixture(scope="module")
def dead_owner() -> owner.Owner:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return replace(ME, pid=child.pid)


@pytest.mark.parametrize(
    ("container_labels", "stays"),
    [
        pytest.param({labels.KIT: "train"}, "no run of berth started it; `docker rm` removes it", id="without-a-run"),
        pytest.param(ME.labels("1"), f"its run is still going, in process {ME.pid}", id="active-run"),
    ],
)
def test_why_container_stays(container_labels: dict[str, str], stays: str) -> None:
    assert clean.why_container_stays(container_labels) == stays


OWN = "it is your own, built FROM berth's; `docker rmi` removes it"
LABELS = {
    labels.KIT: "train",
    labels.PROFILE: "cpu",
    f"{labels.SOURCE}.version": "0.1.0",
    f"{labels.SOURCE}.revision": "1a2b3c4d5e6f",
}
EXACT = f"berth-train:{labels.exact(LABELS, 'cpu')}"
BASE = {labels.KIT: "base"}


@pytest.mark.parametrize(
    ("tags", "image_labels", "layers", "named", "stays"),
    [
        pytest.param(["berth-train:cpu", "my:1"], LABELS, 21, 20, "", id="berths-name"),
        pytest.param([EXACT], LABELS, 20, None, "", id="build-tag"),
        pytest.param(["berth-base:bookworm"], BASE, 1, None, "", id="base"),
        pytest.param(
            ["1.dkr.ecr.eu-west-1.amazonaws.com/team/berth-train:cpu"], LABELS, 20, 20, "", id="name-in-a-registry"
        ),
        pytest.param(["localhost:5000/berth-train:cpu"], LABELS, 20, 20, "", id="registry-with-a-port"),
        pytest.param([], LABELS, 20, 20, "", id="unnamed-earlier-build"),
        pytest.param([], LABELS, 21, 20, OWN, id="unnamed-derived"),
        pytest.param(["my:1"], LABELS, 20, 20, OWN, id="derived"),
        pytest.param(["berth-train:peft"], LABELS, 21, 20, OWN, id="derived-with-berths-repository"),
        pytest.param(["ghcr.io/me/berth-train:with-peft"], LABELS, 21, 20, OWN, id="derived-in-a-registry"),
        pytest.param(["berth-train:cu130"], LABELS, 21, 20, OWN, id="name-of-another-profile"),
        pytest.param(["berth-train-mine:cpu"], LABELS, 21, 20, OWN, id="similar-repository"),
        pytest.param(["mybase:1"], BASE, 2, 1, OWN, id="derived-from-the-base"),
        pytest.param(
            [],
            LABELS,
            20,
            None,
            "it may be your own, built FROM berth's; `docker rmi` removes it",
            id="unnamed-without-named-build",
        ),
    ],
)
def test_why_image_stays(
    tags: list[str], image_labels: dict[str, str], layers: int, named: int | None, stays: str
) -> None:
    assert clean.why_image_stays(tags, image_labels, layers, named) == stays


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two commits on `main` and a third one on the branch `other`."""
    root = tmp_path_factory.mktemp("checkout")
    (root / ".dockerignore").write_text("*\n")
    git(root, "init", "--quiet", "--initial-branch", "main")
    for number in range(2):
        git(root, "add", ".")
        git(root, "commit", "--quiet", "--allow-empty", "--message", str(number))
    git(root, "checkout", "--quiet", "-b", "other")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "other")
    git(root, "checkout", "--quiet", "main")
    return root


@pytest.mark.parametrize(
    ("commit", "suffix", "ours"),
    [
        ("main", "", True),
        ("main", "-dirty", True),
        ("main~1", "", True),
        ("other", "", False),
    ],
)
def test_commit_or_ancestor_belongs_to_the_checkout(commit: str, suffix: str, ours: bool, checkout: Path) -> None:
    assert clean.is_of_checkout(git(checkout, "rev-parse", "--short=12", commit).strip() + suffix, checkout) is ours


@pytest.mark.parametrize("built_from", ["none", "0123456789ab", "--help", ""])
def test_unknown_commit_does_not_belong_to_the_checkout(built_from: str, checkout: Path) -> None:
    assert not clean.is_of_checkout(built_from, checkout)


class FakeEngine:
    """A fake engine with images by name, each with a revision; `removed` has the names of removed images."""

    def __init__(self, revisions: dict[str, str]) -> None:
        self.images = self
        self.containers = self.networks = SimpleNamespace(list=lambda **_: [])
        self.revisions = revisions
        self.removed: list[str] = []

    def list(self, filters: dict[str, str]) -> list[Any]:
        return [
            SimpleNamespace(
                id=f"sha256:{name}",
                tags=[name],
                labels={**LABELS, f"{labels.SOURCE}.revision": built_from},
                attrs={"RootFS": {"Layers": []}},
            )
            for name, built_from in self.revisions.items()
        ]

    def remove(self, name: str) -> None:
        self.removed.append(name)


HEAD = "berth-train:cpu"
OTHER = f"berth-train:{labels.exact({**LABELS, f'{labels.SOURCE}.revision': '0123456789ab'}, 'cpu')}"


@pytest.mark.parametrize(
    ("words", "watched", "answer", "removed"),
    [
        pytest.param([], False, "", [HEAD], id="no-terminal"),
        pytest.param(["--yes"], False, "", [HEAD, OTHER], id="yes"),
        pytest.param([], True, "n\n", [HEAD], id="answer-no"),
        pytest.param([], True, "y\n", [HEAD, OTHER], id="answer-yes"),
        pytest.param(["--dry-run"], True, "", [], id="dry-run"),
    ],
)
def test_images_of_other_checkouts_are_removed_only_with_consent(
    words: list[str],
    watched: bool,
    answer: str,
    removed: list[str],
    command_line: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    double = FakeEngine({HEAD: "1a2b3c4d5e6f", OTHER: "0123456789ab"})
    monkeypatch.setattr(engine, "connect", lambda: double)
    monkeypatch.setattr(clean, "is_of_checkout", lambda built_from, root: built_from == "1a2b3c4d5e6f")
    monkeypatch.setattr(clean, "stale_folders", lambda locks: [])
    monkeypatch.setattr(commands, "is_watched", lambda: watched)
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    assert command_line.main(["clean", *words]) == 0
    assert double.removed == removed
    printed = capsys.readouterr()
    assert (f"image {OTHER} stays: its commit is not in this checkout's history" in printed.out) == (
        OTHER not in removed
    )
    assert (OTHER in printed.err) == bool(answer)


def test_leftovers_of_a_dead_owner_are_removed(dead_owner: owner.Owner) -> None:
    assert clean.why_container_stays(dead_owner.labels("1")) == ""
    assert clean.why_run_stays(dead_owner.labels("1")) == ""
