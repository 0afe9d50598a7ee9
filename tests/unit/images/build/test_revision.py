"""The revision of a build, uncommitted changes, and checkouts that can't be built."""

import shutil
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.images.build.plan import Revision
from berth.images.build.revision import NO_COMMIT, checkout_problems, commit_of, read_revision, sent_paths
from berth.images.pins import pins
from tests.doubles.programs import git
from tests.files import write_files

SHA = "1A2B3C4D5E6F7890aabbccddeeff00112233445566"[:40]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with this checkout's .dockerignore and .gitignore files."""
    folder = tmp_path / "clone"
    for name in (".dockerignore", ".gitignore", "docker/wheels/.gitignore", "docker/files/.gitignore"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pins.ROOT / name, folder / name)
    write_files(folder, dict.fromkeys(("train/planning/plan.py", "docker/Dockerfile", "README.md"), "a line\n"))
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-mx")
    return folder


def test_clean_clone_has_commit_and_date(clone: Path) -> None:
    found = read_revision(clone, {"BERTH_REVISION": SHA})
    assert (len(found.commit), found.dirty, found.created[:2]) == (12, False, "20")
    assert found.commit != SHA[:12].lower(), "a commit in git overrides variables"


@pytest.mark.parametrize(
    ("path", "dirty"),
    [
        ("train/new.py", True),
        ("train/build/ignored.py", True),
        ("train/planning/plan.py", True),
        ("docker/Dockerfile", True),
        (".dockerignore", True),
        ("docker/locks/mine/pytorch.txt", True),
        ("README.md", False),
        ("src/train.py", False),
        ("training.py", False),
        ("train_data/x", False),
        ("serve.log", False),
        ("qa-notes.md", False),
        ("train/__pycache__/plan.cpython-311.pyc", False),
        ("train/old.pyc", False),
        ("docker/wheels/torch-2.13.0-cp311.whl", False),
        ("docker/files/aws-efa-installer-1.47.0.tar.gz", False),
    ],
)
def test_only_files_of_the_build_make_a_revision_dirty(path: str, dirty: bool, clone: Path) -> None:
    """The user's git settings for untracked and ignored files must not matter."""
    git(clone, "config", "status.showUntrackedFiles", "no")
    (clone / ".git" / "info").mkdir(exist_ok=True)
    (clone / ".git" / "info" / "exclude").write_text("build/\n")
    (clone / path).parent.mkdir(parents=True, exist_ok=True)
    with (clone / path).open("a") as file:
        file.write("another line\n")
    assert read_revision(clone, {}).dirty == dirty


def test_checkout_inside_another_repository_has_its_commit(clone: Path) -> None:
    outer = clone.parent
    shutil.rmtree(clone / ".git")
    git(outer, "init", "-q")
    git(outer, "add", ".")
    git(outer, "commit", "-q", "-mx")
    assert not read_revision(clone, {}).dirty
    (clone / "train" / "new.py").touch()
    assert read_revision(clone, {}).dirty


@pytest.mark.parametrize(
    ("environ", "commit"),
    [
        ({}, NO_COMMIT),
        ({"GITHUB_SHA": SHA}, "1a2b3c4d5e6f"),
        ({"CI_COMMIT_SHA": SHA}, "1a2b3c4d5e6f"),
        ({"CODEBUILD_RESOLVED_SOURCE_VERSION": SHA}, "1a2b3c4d5e6f"),
        ({"BERTH_REVISION": SHA[:12], "GITHUB_SHA": "f" * 40}, "1a2b3c4d5e6f"),
        ({"CODEBUILD_RESOLVED_SOURCE_VERSION": "arn:aws:s3:::bucket/source.zip", "GITHUB_SHA": SHA}, "1a2b3c4d5e6f"),
        ({"BERTH_REVISION": ""}, NO_COMMIT),
    ],
)
def test_revision_without_git_comes_from_a_variable(environ: dict[str, str], commit: str, tmp_path: Path) -> None:
    lines: list[str] = []
    assert read_revision(tmp_path, environ, lines.append) == Revision(commit)
    assert ["BERTH_REVISION" in each for each in lines] == [True] * (commit == NO_COMMIT)


def test_repository_without_commit_gives_none(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert read_revision(tmp_path, {}) == Revision(NO_COMMIT)


def test_invalid_berth_revision_is_refused() -> None:
    with pytest.raises(UserError, match=r"BERTH_REVISION is 'v1\.0', which is not a commit"):
        commit_of({"BERTH_REVISION": "v1.0"})


def test_git_error_is_reported(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git refuses a checkout that belongs to another user, such as a mounted one."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(UserError) as refusal:
        read_revision(clone, {"GITHUB_SHA": SHA})
    assert "dubious ownership" in str(refusal.value)
    assert f"git config --global --add safe.directory {clone}" in str(refusal.value)


def test_sent_paths_are_those_of_dockerignore() -> None:
    kept, left_out = sent_paths((pins.ROOT / ".dockerignore").read_text().splitlines())
    assert {"train", "docker/locks", "docker/layers", "docker/Dockerfile", ".dockerignore"} <= set(kept)
    assert left_out == ["__pycache__", "*.pyc"]


def test_checkout_problems_are_lost_links_and_windows_line_ends(tmp_path: Path) -> None:
    assert checkout_problems(pins.ROOT) == []
    (tmp_path / "berth").mkdir()
    (tmp_path / "berth" / "common").write_text("../common")
    (tmp_path / "docker" / "layers").mkdir(parents=True)
    (tmp_path / "docker" / "layers" / "common.sh").write_bytes(b"#!/bin/sh\r\nset -eu\r\n")
    links, line_ends = checkout_problems(tmp_path)
    assert "core.symlinks=true" in links
    assert "core.autocrlf=false" in line_ends


def test_checkout_has_unix_line_ends_despite_autocrlf(tmp_path: Path) -> None:
    shutil.copy(pins.ROOT / ".gitattributes", tmp_path)
    git(tmp_path, "init", "-q")
    names = ["docker/layers/x.sh", "docker/Dockerfile", "docker/locks/cpu/x.txt", "Makefile", "train/x.py"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"one\r\ntwo\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-mx")
    for name in names:
        (tmp_path / name).unlink()
    git(tmp_path, "-c", "core.autocrlf=true", "checkout", "-q", ".")
    assert [name for name in names if b"\r" in (tmp_path / name).read_bytes()] == []
