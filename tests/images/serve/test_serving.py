"""The archive of a training job, served by the inference image."""

import json
import os
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.common.errors import UserError
from berth.images.pins import pins
from berth.local.serve.endpoint import EndpointOptions, ask, deploy
from tests.conftest import Excerpt
from tests.images.conftest import Demo
from tests.images.serve.served import Served

PROFILE = os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE)
IMAGE = f"berth-serve:{PROFILE}"
QUESTION = {
    "question": "What does Philipp do for living?",
    "context": "My Name is Philipp and I am a data scientist who lives in Tacoma, Washington.",
}


def unexpected(log: list[str]) -> list[str]:
    """Lines that are not the server's `berth: …`, and its warnings and errors."""
    return [
        line for line in log if not line.startswith("berth: ") or line.startswith(("berth: warning", "berth: error"))
    ]


@pytest.fixture(scope="module")
def archive(small_demo: Demo) -> Path:
    return small_demo.out / "model.tar.gz"


@pytest.fixture(scope="module")
def log() -> list[str]:
    """What the container of `served` has printed so far."""
    return []


@pytest.fixture(scope="module")
def served(archive: Path, log: list[str]) -> Iterator[Served]:
    with deploy(EndpointOptions(archive, IMAGE, port=None), log=log.append) as endpoint:
        yield Served(endpoint.container)
    print("\n".join(log))


def answer_of(served: Served, question: str, context: str) -> dict[str, Any]:
    return ask(f"http://127.0.0.1:{served.port}", question, context)


def assert_answer(answer: Any, context: str) -> None:
    assert set(answer) == {"score", "start", "end", "answer"}
    assert 0 <= answer["score"] <= 1
    assert answer["answer"] == context[answer["start"] : answer["end"]]
    assert answer["answer"].strip()


def test_archive_contains_no_manifest_json(archive: Path) -> None:
    """Multi Model Server takes every manifest.json below the model's folder for one of its own."""
    with tarfile.open(archive) as files:
        names = {Path(name).name for name in files.getnames()}
    assert "graph.json" in names
    assert "manifest.json" not in names


def test_ping_reports_precision(served: Served) -> None:
    assert served.ping()[:2] == (200, {"status": "ready", "precision": "fp32"})


def test_questions_of_a_list_are_answered_in_order(served: Served, excerpt: Excerpt) -> None:
    questions = [QUESTION]
    for article in excerpt("heldout", 12)["data"]:
        for paragraph in article["paragraphs"]:
            questions += [
                {"question": question["question"], "context": paragraph["context"]} for question in paragraph["qas"]
            ]
    status, answers, _ = served.ask(questions)
    assert status == 200
    assert len(answers) == len(questions) >= 13
    for question, answer in zip(questions, answers, strict=True):
        assert_answer(answer, question["context"])
    assert answers[0] == pytest.approx(answer_of(served, **QUESTION), abs=1e-4)


def test_long_context_with_unusual_characters_is_answered(served: Served, excerpt: Excerpt) -> None:
    contexts = [paragraph["context"] for each in excerpt("heldout", 40)["data"] for paragraph in each["paragraphs"]]
    context = "\r\n🙂 e\u0301 ".join([*contexts, QUESTION["context"]])
    assert len(context.split()) > 2 * 384, "more than two windows"
    assert_answer(answer_of(served, QUESTION["question"], context), context)


def test_sigterm_ends_the_server_before_it_is_killed(archive: Path) -> None:
    log: list[str] = []
    with deploy(EndpointOptions(archive, IMAGE, port=None), log=log.append) as endpoint:
        assert_answer(ask(endpoint.url, **QUESTION), QUESTION["context"])
        endpoint.container.stop(timeout=20)
        code = endpoint.container.wait()["StatusCode"]
    print("\n".join(log))
    assert code == 0
    assert unexpected(log) == []


def test_model_without_answer_head_is_refused_before_it_is_served(pretrained: Path, tmp_path: Path) -> None:
    """config.json promises an answer head that the weights lack; only the server reads the weights."""
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copy(pretrained / name, tmp_path)
    config = json.loads((pretrained / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForQuestionAnswering"]}))
    options = EndpointOptions(tmp_path, IMAGE, port=None)
    lines: list[tuple[float, str]] = []
    with pytest.raises(UserError, match=r"before it could answer: .*qa_outputs"):
        with deploy(options, log=lambda line: lines.append((time.monotonic(), line))):
            raise AssertionError("a model without an answer head was served")
    reported = next(at for at, line in lines if "qa_outputs" in line)
    assert time.monotonic() - reported < 8, "deploy must not wait for the 10 s that the server stays up on an endpoint"


@pytest.mark.usefixtures("served")
def test_log_of_a_healthy_server_has_no_warning(log: list[str]) -> None:
    assert any("ready: loaded in" in line for line in log)
    assert unexpected(log) == []
