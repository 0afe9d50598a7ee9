"""A job's archives, and its files if an archive can't be written."""

import tarfile
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from berth.common.errors import UserError
from berth.local import opt_ml
from berth.local.session import RunSession
from berth.local.train import artifacts


def make_hosts(folder: Path, count: int) -> dict[str, Path]:
    """The folders of so many hosts, each with an empty folder `model`."""
    roots = {host: folder / host for host in opt_ml.host_names(count)}
    for root in roots.values():
        (root / "model").mkdir(parents=True)
    return roots


def test_hosts_folders_are_kept_if_packing_fails(tmp_path: Path) -> None:
    session = RunSession(MagicMock(), "no-image", say=print, stop_grace=1.0)
    session.scratch = tmp_path / "run"
    roots = make_hosts(session.scratch, 2)
    (roots["algo-1"] / "model" / "model.safetensors").write_text("weights")
    with pytest.raises(UserError, match=r"can't be written .* What the job wrote is kept in") as refusal:
        artifacts.pack_folder(session, roots, "model", tmp_path / "no-such-folder" / "model.tar.gz")
    kept = tmp_path / f"kept-{session.run_id}"
    assert str(kept) in str(refusal.value)
    assert (kept / "algo-1" / "model" / "model.safetensors").read_text() == "weights"


def test_first_hosts_file_is_packed_and_duplicates_are_reported(tmp_path: Path) -> None:
    printed: list[str] = []
    session = RunSession(MagicMock(), "no-image", say=printed.append, stop_grace=1.0)
    roots = make_hosts(tmp_path, 2)
    for host, root in roots.items():
        for name in ("weights", host):
            (root / "model" / name).write_text(host)
    (tmp_path / "model.tar.gz").write_text("of an earlier job")
    packed = artifacts.pack_folder(session, roots, "model", tmp_path / "model.tar.gz")
    assert packed is not None
    assert (tmp_path / "earlier-model.tar.gz").read_text() == "of an earlier job"
    with tarfile.open(packed) as tar:
        assert tar.getnames() == ["algo-1", "algo-2", "weights"]
        assert tar.extractfile("weights").read() == b"algo-1"  # type: ignore[union-attr]
    assert printed == [
        "model.tar.gz: several hosts wrote files of the same names (weights); those of the first are kept.",
        f"model.tar.gz was from an earlier job: it is now {tmp_path / 'earlier-model.tar.gz'}.",
    ]


def test_many_hosts_share_one_line_sorted_by_number(tmp_path: Path) -> None:
    printed: list[str] = []
    session = RunSession(MagicMock(), "no-image", say=printed.append, stop_grace=1.0)
    roots = make_hosts(tmp_path, 40)
    for root in roots.values():
        for name in ("config", "weights"):
            (root / "model" / name).touch()
        (root / "model/secret").symlink_to("/etc/passwd")
    artifacts.pack_folder(session, roots, "model", tmp_path / "model.tar.gz")
    assert len(printed) == 2
    assert "config, weights" in printed[0]
    assert "algo-1, algo-2, algo-3, …, algo-40" in printed[1]
    assert "'secret'" in printed[1]
