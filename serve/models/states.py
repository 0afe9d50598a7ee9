"""The states of a model on a multi-model endpoint, and which actions each allows.

A model is LOADING, then READY, then UNLOADING, and then removed. If its load fails or is ended, it skips READY; if its
worker can't be restarted, it is unloaded. SageMaker's contract: 409 for loading a loaded name; 404 for other actions on
a name that is not loaded (SageMaker then loads the model); an unload answers only when the memory is free:
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
    """What a request does with the model that it names."""

    LOAD = "load"
    UNLOAD = "unload"
    INVOKE = "invoke"
    DESCRIBE = "describe"


class Step(Enum):
    """How to go on with an action that is not refused."""

    PROCEED = "proceed"
    WAIT = "wait"
    """Wait until the model is unloaded, and then decide again."""


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
        ModelState.LOADING: Step.PROCEED,  # otherwise nothing could end a load that hangs
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


def decide(action: ModelAction, state: ModelState | None) -> Step | Kind:
    """How to go on with the action, or the kind of its error. `state` is None for a name without a model."""
    return _TABLE[action][state]


def refusal_of(action: ModelAction, state: ModelState | None, name: str) -> str:
    """The sentence of the error if `decide` refuses the action."""
    if state is None:
        return f"there is no model {name[:80]}: {_ADVICE[action]}"
    advice = "ask again in a few seconds" if decide(action, state) is Kind.NOT_READY else _ADVICE[action]
    return f"the model {name[:80]} is {state.value}: {advice}"
