"""One worker makes a missing graph for all workers of a server; if it fails, no other worker tries."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.runtime.engines import conversion
from berth.runtime.engines.conversion import kept_folder, make_graph_once, refuse
from berth.runtime.engines.graph import GraphError
from berth.runtime.engines.model_folder import ModelFilesError

WORKER = """
import sys
from pathlib import Path
from berth.runtime.engines import choose
settings = choose.settings({"BERTH_GRAPH_DIR": sys.argv[2]}, 1, cuda=False)
print(choose.load(Path(sys.argv[1]), settings, print).engine.info.description)
"""


def start_workers(model: Path, folder: Path, count: int) -> list[subprocess.Popen[str]]:
    command = [sys.executable, "-P", "-c", WORKER, str(model), str(folder)]
    return [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]


def lines_of(workers: list[subprocess.Popen[str]]) -> list[list[str]]:
    return [worker.communicate(timeout=300)[0].splitlines() for worker in workers]


def conversions_of(model: Path) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"berth.runtime.engines.convert" in words and str(model).encode() in words:
            yield int(path.parent.name)


@pytest.mark.slow
def test_one_worker_makes_graph_and_all_load_it(tiny_model: Path, tmp_path: Path) -> None:
    outputs = lines_of(start_workers(tiny_model, tmp_path, 3))
    assert sorted(len(lines) for lines in outputs) == [1, 1, 2]
    assert {lines[-1].partition(" ")[0] for lines in outputs} == {"OpenVINO"}
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1


@pytest.mark.nightly
def test_killed_conversion_is_not_repeated(tiny_model: Path, tmp_path: Path) -> None:
    workers = start_workers(tiny_model, tmp_path, 2)
    deadline = time.monotonic() + 120
    while not (conversions := list(conversions_of(tiny_model))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    while Path(f"/proc/{conversions[0]}/oom_score_adj").read_text() != "1000\n":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(conversions[0], signal.SIGKILL)
    outputs = lines_of(workers)
    assert sorted(len(lines) for lines in outputs) == [2, 3], "only one worker must try"
    (reason,) = {lines[-2] for lines in outputs}
    assert reason.startswith("using PyTorch instead of OpenVINO: ")
    assert f"no graph for OpenVINO was made of {tiny_model}: SIGKILL ended the conversion" in reason
    assert {lines[-1].partition(" ")[0] for lines in outputs} == {"PyTorch"}


def test_memory_refusal_applies_to_all_workers_of_server(tiny_model: Path, tmp_path: Path) -> None:
    graph_folder = tmp_path / "folder" / "digest"
    with pytest.raises(GraphError, match=r"about 40\d MB of memory, and 300 MB are free"):
        make_graph_once(tiny_model, graph_folder, "2026.4.1", print, lambda: 300_000_000)
    with pytest.raises(GraphError, match="300 MB are free"):
        make_graph_once(tiny_model, graph_folder, "2026.4.1", print, lambda: 10**12)
    (record,) = graph_folder.parent.iterdir()
    record.write_text(json.dumps({**json.loads(record.read_text()), "server": "another"}))
    with pytest.raises(GraphError, match="200 MB are free"):
        make_graph_once(tiny_model, graph_folder, "2026.4.1", print, lambda: 200_000_000)


def test_recorded_model_error_is_raised_by_every_worker(tiny_model: Path, tmp_path: Path) -> None:
    graph_folder = tmp_path / "digest"
    refuse(graph_folder, ModelFilesError("the weights lack a head"))
    with pytest.raises(ModelFilesError, match="the weights lack a head"):
        make_graph_once(tiny_model, graph_folder, "2026.4.1", print)


def test_unwritable_graph_folder_is_named_with_its_variable(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GraphError, match=f"{tmp_path}/file/kept .* set BERTH_GRAPH_DIR"):
        make_graph_once(tiny_model, tmp_path / "file/kept/digest", "2026.4.1", print)


def test_graph_folder_depends_on_files_and_version(tmp_path: Path) -> None:
    hashes = [{"config.json": "a"}, {"config.json": "b"}, {"config.json": "a", "vocab.txt": "c"}]
    folders = [kept_folder(tmp_path, each, version) for each in hashes for version in ("2026.4", "2026.5")]
    assert len(set(folders)) == 6
    assert conversion.kept_folder(tmp_path, hashes[0], "2026.4") == folders[0]
