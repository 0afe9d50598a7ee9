"""The server's own description of its paths."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import validator_for
from starlette.testclient import TestClient

from berth.images import pins
from berth.serve.app import create_app
from berth.serve.codecs import CODECS
from berth.serve.openapi import document
from tests.unit.serve.in_process import ONE, ready_service


@pytest.fixture(scope="module")
def own_client(tiny_model: Path) -> TestClient:
    return TestClient(create_app(ready_service(tiny_model)))


def schema_of(described: dict[str, Any], name: str) -> Any:
    return validator_for({"$ref": f"#/components/schemas/{name}", "components": described["components"]})


def test_it_describes_every_path_that_is_there(own_client: TestClient) -> None:
    described = own_client.get("/openapi.json").json()
    refused = own_client.get("/nowhere").json()["error"]
    paths = {(method.upper(), path) for path, found in described["paths"].items() for method in found}
    assert all(f"{method} {path}" in refused for method, path in paths)
    assert len(paths) == refused.count(" /")
    for _, path in {each for each in paths if each[0] == "GET"}:
        assert own_client.get(path).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        ONE,
        {"inputs": ONE},
        {"inputs": [ONE, ONE], "parameters": {"top_k": 3}},
        {"inputs": [ONE], "parameters": {"topk": 2, "max_seq_len": 64, "align_to_words": False}},
        {**ONE, "parameters": None},
        {"inputs": {**ONE, "context": " "}},
        {"inputs": []},
        {"inputs": ONE, "parameters": {"top_k": 2, "topk": 2}},
        {"inputs": ONE, "parameters": {"top_k": 0}},
        {"inputs": ONE, "parameters": {"max_answer_len": True}},
        {"inputs": ONE, "more": 1},
        [ONE],
        {},
    ],
)
def test_its_schema_takes_what_the_server_takes(own_client: TestClient, body: Any) -> None:
    described = own_client.get("/openapi.json").json()
    response = own_client.post("/invocations", json=body)
    assert schema_of(described, "Request").is_valid(body) == (response.status_code == 200)
    assert schema_of(described, "Answers" if response.status_code == 200 else "Error").is_valid(response.json())


@pytest.mark.parametrize("media_type", CODECS)
def test_its_examples_are_answered_in_every_type(own_client: TestClient, media_type: str) -> None:
    invocations = own_client.get("/openapi.json").json()["paths"]["/invocations"]["post"]
    example = invocations["requestBody"]["content"][media_type]["example"]
    body = example if isinstance(example, str) else json.dumps(example)
    response = own_client.post("/invocations", content=body, headers={"content-type": media_type})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith(media_type)
    assert "error" not in response.text.replace(",error", "")
    assert set(invocations["responses"]["200"]["content"]) == set(CODECS)


def test_its_version_is_the_kits(own_client: TestClient) -> None:
    assert own_client.get("/openapi.json").json()["info"]["version"] == pins.version()


def test_a_server_of_many_models_describes_its_own() -> None:
    described = document(["/ping", "/models", "/models/{name}", "/models/{name}/invoke"])
    assert set(described["paths"]["/models"]) == {"get", "post"}
    assert "507" in described["paths"]["/models"]["post"]["responses"]
