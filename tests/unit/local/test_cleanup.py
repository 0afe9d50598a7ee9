"""Removing the scratch folder of a run."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import MagicMock

from berth.local import cleanup


def test_two_runs_can_remove_the_same_scratch_folder(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(100)]
    for folder in folders:
        folder.mkdir()
        (folder / "file").write_text("x")

    def remove() -> None:
        for folder in folders:
            cleanup.remove_scratch(MagicMock(), "no-image", folder)

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(remove), pool.submit(remove)]:
            future.result()
    assert list(tmp_path.iterdir()) == []
