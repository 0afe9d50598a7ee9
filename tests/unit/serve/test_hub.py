"""HF_MODEL_ID with an empty model folder, and a double of the hub."""

import os
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from berth.runtime.engines.model_folder import ModelFilesError
from berth.serve.http.app import create_app
from berth.serve.hub import model_folder, wanted_files, wants_hub
from tests.doubles.hub_double import COMMIT, HubDouble, hub_of
from tests.unit.serve.in_process import ONE, ready_service, stop_all


def environment(hub: HubDouble, name: str, **variables: str) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "HF_MODEL_ID": name, "HF_HUB_OFFLINE": "1", **variables}


@pytest.fixture(autouse=True)
def own_tmpdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["", COMMIT])
def test_model_is_fetched_from_the_hub_once(tiny_model: Path, tmp_path: Path, revision: str) -> None:
    (tmp_path / "model").mkdir()
    with hub_of(HubDouble({"me/tiny": tiny_model}, token="hf_secret")) as hub:
        variables = environment(hub, "me/tiny", HF_TOKEN="hf_secret", HF_MODEL_REVISION=revision)
        client = TestClient(create_app(ready_service(tmp_path / "model", **variables)))
        first = client.post("/invocations", json=ONE).json()
        assert first["answer"] in ONE["context"]
        count = len(hub.requests)
        stop_all()
        again = TestClient(create_app(ready_service(tmp_path / "model", **variables)))
        assert again.post("/invocations", json=ONE).json() == first
        assert len(hub.requests) == count  # fetched once


def failed_fetch(folder: Path, **variables: str) -> str:
    with pytest.raises(ModelFilesError) as caught:
        model_folder(folder / "model", os.environ | variables, folder / "scratch", print)
    return str(caught.value)


@pytest.mark.slow
def test_failed_fetch_is_reported_with_the_reason(tiny_model: Path, tmp_path: Path) -> None:
    with hub_of(HubDouble({"me/tiny": tiny_model, "me/gated": tiny_model}, gated=frozenset({"me/gated"}))) as hub:
        for name, revision, reason in (
            ("me/other", "", "there is no such model, or it is private: check the name, or set HF_TOKEN"),
            ("me/tiny", "v9", "it has no revision v9: set HF_MODEL_REVISION to a branch, a tag or a commit"),
            ("me/gated", "", "it is gated: accept its terms, and give HF_TOKEN the token of that account"),
            ("a/b/c", "", "it is not a valid hub name, such as owner/model"),
        ):
            expected = f"HF_MODEL_ID is `{name}`, which can't be fetched: {reason}"
            assert failed_fetch(tmp_path, **environment(hub, name, HF_MODEL_REVISION=revision)) == expected
        closed_hub = hub.url
    sentence = failed_fetch(tmp_path, HF_ENDPOINT=closed_hub, HF_MODEL_ID="me/tiny")
    assert sentence.startswith("HF_MODEL_ID is `me/tiny`, which can't be fetched: ")
    assert sentence.endswith(": give the container a way to the hub, or put the model into model.tar.gz")


def test_hub_is_used_only_if_the_folder_is_empty(tiny_model: Path, tmp_path: Path) -> None:
    assert not wants_hub(tiny_model, {"HF_MODEL_ID": "me/tiny"})
    assert not wants_hub(tmp_path, {})
    assert wants_hub(tmp_path, {"HF_MODEL_ID": "me/tiny"})
    assert wants_hub(tmp_path / "none", {"HF_MODEL_ID": "me/tiny"})


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (
            ["config.json", "tokenizer.json", "vocab.txt", "model.safetensors", "pytorch_model.bin", "tf_model.h5"],
            ["config.json", "tokenizer.json", "vocab.txt", "model.safetensors"],
        ),
        (
            ["config.json", "pytorch_model.bin", "training_args.bin", "README.md", "onnx/model.onnx"],
            ["config.json", "pytorch_model.bin"],
        ),
        (
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"],
            ["model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
        ),
        (
            ["openvino/graph.json", "openvino/fp32.bin", "code/inference.py"],
            ["openvino/fp32.bin", "openvino/graph.json"],
        ),
        (["openvino/openvino_model.xml", "spiece.model"], ["spiece.model"]),
    ],
    ids=["one form of the weights", "older weights", "parts", "a graph of ours", "a graph of others"],
)
def test_wanted_files_are_config_tokenizer_one_kind_of_weights_and_graph(names: list[str], wanted: list[str]) -> None:
    assert wanted_files(names) == wanted
