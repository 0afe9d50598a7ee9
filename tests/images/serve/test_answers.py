"""The inference image answers a question. `push` runs this on machines without torch, so the image makes the model."""

import os
from pathlib import Path

import docker
import pytest

from tests.images.serve.conftest import IMAGE, Serve

MAKE_MODEL = """
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer
torch.manual_seed(0)
AutoModelForQuestionAnswering.from_pretrained("/pretrained").save_pretrained("/made")
AutoTokenizer.from_pretrained("/pretrained").save_pretrained("/made")
"""


@pytest.fixture(scope="module")
def made_model(client: docker.DockerClient, pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    client.containers.run(
        IMAGE,
        ["-c", MAKE_MODEL],
        entrypoint=["python"],
        user=f"{os.getuid()}:{os.getgid()}",
        environment={"HOME": "/tmp"},
        network_mode="none",
        volumes=[f"{pretrained}:/pretrained:ro", f"{folder}:/made"],
        remove=True,
    )
    return folder


def test_a_question_is_answered_from_its_context(serve_model: Serve, made_model: Path) -> None:
    served = serve_model(made_model)
    context = "Philipp is a data scientist."
    status, answer, _ = served.ask({"question": "Who is Philipp?", "context": context})
    assert status == 200
    assert context[answer["start"] : answer["end"]] == answer["answer"] != ""
    assert 0 <= answer["score"] <= 1
    assert served.ask({"question": "Who is Philipp?"})[0] == 400
