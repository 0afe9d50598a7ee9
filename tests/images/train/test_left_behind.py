"""Links and special files that a program leaves in /opt/ml: no file of this machine may be copied to the output."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

CANARY = "a file of the machine that was never mounted"

# /opt/ml/model is a mount, as under SageMaker, so it can't be replaced.
REPLACES_FOLDERS = """
import os, shutil
shutil.rmtree("/opt/ml/output/data")
os.symlink({secret!r}, "/opt/ml/output/data")
os.symlink({secret!r} + "/key", "/opt/ml/output/failure")
raise SystemExit({code})
"""

LINKS_IN_FOLDERS = """
import os, socket
os.chdir("/opt/ml/model")
open("model.safetensors", "w").write("weights")
os.symlink("/opt/ml/model/model.safetensors", "latest")
os.symlink({secret!r} + "/key", "key")
os.symlink({secret!r}, "folder")
os.mkfifo("pipe.safetensors")
os.mknod("null", 0o20666, os.makedev(1, 3))
os.symlink({secret!r} + "/key", "/opt/ml/output/data/key")
os.symlink({secret!r} + "/key", "/opt/ml/checkpoints/key")
open("/opt/ml/checkpoints/state", "w").write("saved")
raise SystemExit({code})
"""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "key").write_text(CANARY)
    return folder


def output_files(output: Path) -> list[str]:
    """The files in the output folder and members of its archives; fails if one contains the canary."""
    names = []
    for path in sorted(output.rglob("*")):
        assert not path.is_symlink()
        if path.is_file() and path.name.endswith(".tar.gz"):
            with tarfile.open(path) as tar:
                for member in tar:
                    assert member.isreg()
                    assert CANARY.encode() not in tar.extractfile(member).read()  # type: ignore[union-attr]
                    names.append(f"{path.name}:{member.name}")
        elif path.is_file():
            assert CANARY not in path.read_text()
            names.append(path.name)
    return names


@pytest.mark.parametrize("code", [0, 3])
def test_folder_replaced_by_link_is_skipped_with_warning(
    code: int, secret: Path, user_job: Callable[..., object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = REPLACES_FOLDERS.format(secret=str(secret), code=code)
    ran = user_job({"train.py": program}, "train.py", output=tmp_path / "out")
    printed = capfd.readouterr().out
    assert ran.outcome.exit_code == code  # type: ignore[attr-defined]
    assert output_files(tmp_path / "out") == (["failure-algo-1", "train.log"] if code else ["train.log"])
    assert "/opt/ml/output/data of algo-1" in printed
    assert "'output/data' itself (a link in place of the folder)" in printed
    if code:
        assert "'failure' is a link" in (tmp_path / "out/failure-algo-1").read_text()


@pytest.mark.parametrize("code", [0, 3])
def test_links_and_special_files_are_skipped_with_warning(
    code: int, secret: Path, user_job: Callable[..., object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = user_job(
        {"train.py": LINKS_IN_FOLDERS.format(secret=str(secret), code=code)},
        "train.py",
        output=tmp_path / "out",
        gpus=False,
    )
    printed = capfd.readouterr().out
    assert ran.outcome.exit_code == code  # type: ignore[attr-defined]
    if code:
        assert output_files(tmp_path / "out") == ["state", "failure-algo-1", "train.log"]
        assert "'key', a link that leads out of it: it is removed." in printed
    else:
        model = ["model.tar.gz:latest", "model.tar.gz:model.safetensors"]
        assert output_files(tmp_path / "out") == [*model, "train.log"]
        for name, kind in {
            "folder": "a link that leads out of it",
            "key": "a link that leads out of it",
            "null": "a device",
            "pipe.safetensors": "a pipe",
        }.items():
            assert f"{name!r} ({kind})" in printed
