"""How large the bodies of requests may be: whoever answers a request sets these limits, not the server."""

from dataclasses import dataclass, replace

from berth.serve.errors import Kind, ServeError
from berth.serve.limits import MEBIBYTE, PAYLOAD_VARIABLE, TOKENS_VARIABLE, RequestLimits

_AT_ONCE = 1024 * MEBIBYTE
_DRAINED = 1024 * MEBIBYTE


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The limits of one service, in bytes."""

    most: int
    """Of one body, as it is received and without its Content-Encoding."""
    at_once: int
    """Of all bodies from the first byte to the answer. admission.py limits those of the whole server by its memory."""
    drained: int
    """Of a refused body: so much is read and thrown away, so that a client that still sends can read the refusal."""
    in_transform: int
    """Of one body in a batch transform, as /execution-parameters says it."""
    advice: str
    """What to do about a body that is too large, with the variable that raises `most`."""

    def too_large(self, size: str, *, subject: str = "the body", close: bool = False) -> ServeError:
        """The refusal (413) of a body of that size."""
        sentence = f"{subject} has {size} bytes, over the limit of {self.most}: {self.advice}"
        return ServeError(Kind.TOO_LARGE, sentence, close=close)


LOAD_REQUEST = BodyLimits(MEBIBYTE, MEBIBYTE, 2 * MEBIBYTE, 0, "send a model's name and folder alone")
"""Of POST /models."""


def for_questions(limits: RequestLimits) -> BodyLimits:
    """Of our own model, which takes a limited number of tokens from each body."""
    variable = PAYLOAD_VARIABLE if limits.body == limits.payload else TOKENS_VARIABLE
    advice = f"send fewer questions at once, or raise {variable}"
    in_transform = replace(limits, batch=True).body_of_tokens
    return BodyLimits(limits.body, limits.held_bodies, _drained(limits), in_transform, advice)


def for_handler(limits: RequestLimits) -> BodyLimits:
    """Of a model's own code, whose bodies may hold anything: as many bytes as SageMaker lets through, 25 MB to an
    endpoint and up to 100 MB in a batch transform, which sets SAGEMAKER_MAX_PAYLOAD_IN_MB.
    """
    at_once = max(_AT_ONCE, 2 * limits.payload)
    advice = f"send less at once, or raise {PAYLOAD_VARIABLE}"
    return BodyLimits(limits.payload, at_once, _drained(limits), limits.payload, advice)


def _drained(limits: RequestLimits) -> int:
    return limits.payload + min(limits.payload, _DRAINED)
