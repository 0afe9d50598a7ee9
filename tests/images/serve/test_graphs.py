"""A model's graphs for OpenVINO in the image: made at start, kept, reused or refused."""

import json
import os
import shutil
from pathlib import Path

import pytest
from docker.types import Mount

from berth.images.pins import pins
from berth.runtime.engines.graph import FOLDER
from tests.conftest import Excerpt
from tests.images.conftest import CommandLine
from tests.images.serve.conftest import Serve
from tests.images.serve.served import Served

PROFILE = os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE)
QUESTION = {"question": "What is used?", "context": "This model is used with sagemaker for inference."}
MAKING = "has no graph for OpenVINO: making one takes some seconds"
LOADED = """
import re
from pathlib import Path
maps = "".join(p.read_text() for p in Path("/proc").glob("[0-9]*/maps") if p.parent.name != "self")
print(sorted({m for m in re.findall(r"lib(torch|openvino)_?[a-z]*[.]so", maps)}))
"""


@pytest.fixture(scope="module")
def graph_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the host for the graph that a server makes."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def served(serve_model: Serve, model: Path, graph_folder: Path) -> Served:
    return serve_model(
        model, {"BERTH_GRAPH_DIR": "/graph/minilm"}, mounts=[Mount("/graph", str(graph_folder), type="bind")]
    )


def test_missing_graph_is_made_and_answers_in_float32(served: Served) -> None:
    assert MAKING in served.log()
    assert "berth: engine: OpenVINO " in served.log()
    assert "fp32 on 2 threads" in served.log()
    assert served.ping()[:2] == (200, {"status": "ready", "precision": "fp32"})
    assert served.run(LOADED) == "['openvino']", "the server itself must not import torch"


def test_kept_graph_is_used_by_the_next_server(
    served: Served, serve_model: Serve, model: Path, graph_folder: Path
) -> None:
    graph = Mount("/graph", str(graph_folder), type="bind", read_only=True)
    again = serve_model(model, {"BERTH_GRAPH_DIR": "/graph/minilm"}, mounts=[graph])
    assert MAKING not in again.log()
    assert again.ask(QUESTION)[:2] == served.ask(QUESTION)[:2]


def test_a_model_with_its_graph_is_served_without_torch(
    served: Served, serve_model: Serve, model_with_graph: Path
) -> None:
    """Only the process that makes a graph imports torch, and here none is made."""
    with_graph = serve_model(model_with_graph, {"PYTHONVERBOSE": "1"})
    log = with_graph.log()
    assert MAKING not in log
    assert "import 'openvino'" in log
    assert "import 'torch'" not in log
    assert "import 'transformers'" not in log
    assert with_graph.ask(QUESTION)[1]["answer"] == served.ask(QUESTION)[1]["answer"]


@pytest.mark.nightly
def test_graph_of_other_weights_is_logged_and_made_again(
    serve_model: Serve, model_with_graph: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(model_with_graph, tmp_path / "model"))
    with (model / "model.safetensors").open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\0\0\0\x40")  # 2.0
    served = serve_model(model)
    assert "was made from a model.safetensors that differs from the model's: it is not used" in served.log()
    assert MAKING in served.log()
    assert served.ask(QUESTION)[0] == 200


@pytest.mark.nightly
def test_a_model_is_quantised_by_one_command_and_served_in_int8(
    serve_model: Serve, model_with_graph: Path, excerpt: Excerpt, command_line: CommandLine, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    for split, count in (("train", 60), ("heldout", 40)):
        folder = data / {"heldout": "validation"}.get(split, split)
        folder.mkdir(parents=True)
        (folder / "squad.json").write_text(json.dumps(excerpt(split, count)))
    output = tmp_path / "model.tar.gz"
    words = ("quantize", str(model_with_graph), "--data", str(data), "--output", str(output), "--profile", PROFILE)
    refused = command_line(*words)
    assert (refused.returncode, output.exists()) == (1, False)
    assert "there are only 40 questions to measure its loss, and 500 are needed" in refused.stderr

    quantised = command_line(*words, "--few-questions", "--max-f1-loss", "100")
    assert quantised.returncode == 0, quantised.stdout + quantised.stderr
    assert "on 40 questions int8 has F1 " in quantised.stdout
    shutil.unpack_archive(output, tmp_path / "both")
    graph = json.loads((tmp_path / "both" / FOLDER / "graph.json").read_text())
    assert graph["precisions"]["int8"]["questions"] == 40

    assert serve_model(tmp_path / "both").ping()[1]["precision"] == "fp32"
    served = serve_model(tmp_path / "both", {"BERTH_PRECISION": "int8"})
    assert served.ping()[1]["precision"] == "int8"
    assert "int8 on 2 threads" in served.log()
    assert served.ask(QUESTION)[0] == 200
