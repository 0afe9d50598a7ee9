"""Requests made of the server's own description: the short version of `python -m bench.fuzz`."""

from pathlib import Path

from bench.fuzz import fuzz
from tests.images.serve.conftest import Serve

REQUESTS = 1500


def test_every_answer_is_one_of_the_description(serve_model: Serve, model_with_graph: Path) -> None:
    served = serve_model(model_with_graph, {"SAGEMAKER_CONTAINER_LOG_LEVEL": "warning"})
    url = f"http://127.0.0.1:{served.port}"
    fuzz(url, 200, 1)
    before = served.megabytes()
    figures = fuzz(url, REQUESTS, 2)
    assert figures.faults == []
    assert figures.sent == REQUESTS
    assert figures.share_answered > 0.2
    assert figures.slowest < 10
    assert served.megabytes() < before + 100
    assert "500" not in served.log()
