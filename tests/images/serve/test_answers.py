"""The inference image answers a question. `push` runs this on machines without torch."""

from pathlib import Path

from tests.images.serve.conftest import Serve


def test_a_question_is_answered_from_its_context(serve_model: Serve, model: Path) -> None:
    served = serve_model(model)
    context = "Philipp is a data scientist."
    status, answer, _ = served.ask({"question": "Who is Philipp?", "context": context})
    assert status == 200
    assert context[answer["start"] : answer["end"]] == answer["answer"] != ""
    assert 0 <= answer["score"] <= 1
    assert served.ask({"question": "Who is Philipp?"})[0] == 400
