"""What a request may do in each state of a model."""

import pytest

from berth.serve.errors import STATUS, Kind
from berth.serve.models.states import ModelAction, ModelState, Step, decide, refusal_of

STATES = (None, ModelState.LOADING, ModelState.READY, ModelState.UNLOADING)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ModelAction.LOAD, [Step.PROCEED, 409, 409, Step.WAIT]),
        (ModelAction.UNLOAD, [404, Step.PROCEED, Step.PROCEED, Step.PROCEED]),
        (ModelAction.INVOKE, [404, 503, Step.PROCEED, 404]),
        (ModelAction.DESCRIBE, [404, 404, Step.PROCEED, 404]),
    ],
)
def test_what_a_request_does_with_no_model_and_in_each_state(request_: ModelAction, expected: list[Step | int]) -> None:
    found = [decide(request_, state) for state in STATES]
    assert [STATUS[each] if isinstance(each, Kind) else each for each in found] == expected


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("request_", ModelAction)
def test_a_refusal_names_the_model_and_its_state(request_: ModelAction, state: ModelState | None) -> None:
    if isinstance(decide(request_, state), Kind):
        sentence = refusal_of(request_, state, "x" * 1024)
        assert f" {'x' * 80}" in sentence
        assert len(sentence) < 200
        assert "there is no model" in sentence if state is None else state.value in sentence
