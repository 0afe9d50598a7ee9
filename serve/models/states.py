"""The states of a model on a multi-model endpoint, and what a request may do in each.

A model goes LOADING → READY → UNLOADING and is then gone. A load that fails or is unloaded goes LOADING → UNLOADING, a
model whose workers can't be had any more READY → UNLOADING. SageMaker's contract asks for 409 for a load of a loaded
name, for 404 for everything else of a name that is not loaded (upon which it loads the model), and that an unload
answers only when the memory is free:
https://docs.aws.amazon.com/sagemaker/latest/dg/mms-container-apis.html
"""

from enum import Enum, StrEnum

from berth.serve.errors import Kind


class ModelState(StrEnum):
    """The value completes the sentence "the model is …"."""

    LOADING = "being loaded"
    READY = "loaded"
    UNLOADING = "being unloaded"


class ModelAction(Enum):
    """What is asked of a model by its name."""

    LOAD = "load"
    UNLOAD = "unload"
    INVOKE = "invoke"
    DESCRIBE = "describe"


class Step(Enum):
    """What a request does that is not refused."""

    PROCEED = "proceed"
    WAIT = "wait"
    """Until the model is unloaded, and then decide again."""


_NOT_FOUND = Kind.NOT_FOUND
_TABLE: dict[ModelAction, dict[ModelState | None, Step | Kind]] = {
    ModelAction.LOAD: {
        None: Step.PROCEED,
        ModelState.LOADING: Kind.CONFLICT,
        ModelState.READY: Kind.CONFLICT,
        ModelState.UNLOADING: Step.WAIT,
    },
    ModelAction.UNLOAD: {
        None: _NOT_FOUND,
        ModelState.LOADING: Step.PROCEED,  # else nobody could end a load that never ends
        ModelState.READY: Step.PROCEED,
        ModelState.UNLOADING: Step.PROCEED,  # both answer when it is unloaded
    },
    ModelAction.INVOKE: {
        None: _NOT_FOUND,
        ModelState.LOADING: Kind.NOT_READY,
        ModelState.READY: Step.PROCEED,
        ModelState.UNLOADING: _NOT_FOUND,
    },
    ModelAction.DESCRIBE: {
        None: _NOT_FOUND,
        ModelState.LOADING: _NOT_FOUND,
        ModelState.READY: Step.PROCEED,
        ModelState.UNLOADING: _NOT_FOUND,
    },
}
_ADVICE = {
    ModelAction.LOAD: "unload it first",
    ModelAction.UNLOAD: "GET /models lists the models that are loaded",
    ModelAction.INVOKE: "POST /models loads it",
    ModelAction.DESCRIBE: "GET /models lists the models that are loaded",
}


def decide(request: ModelAction, state: ModelState | None) -> Step | Kind:
    """What the request does, or the kind of its refusal; `state` is None for a name without a model."""
    return _TABLE[request][state]


def refusal_of(request: ModelAction, state: ModelState | None, name: str) -> str:
    """The sentence of a refusal."""
    if state is None:
        return f"there is no model {name[:80]}: {_ADVICE[request]}"
    advice = "ask again in a few seconds" if decide(request, state) is Kind.NOT_READY else _ADVICE[request]
    return f"the model {name[:80]} is {state.value}: {advice}"
