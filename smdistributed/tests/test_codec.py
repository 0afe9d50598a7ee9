"""Control messages as bytes: what arrives equals what was sent, and nothing that is not a message is accepted."""

import json
import pickle
from typing import Any

import pytest
import torch

from berth.smdistributed.modelparallel.torch import codec
from berth.smdistributed.modelparallel.torch.messages import (
    AddGradient,
    Backward,
    Call,
    EndMicrobatch,
    Expect,
    Finish,
    Form,
    Hello,
    Meta,
    Modes,
    Move,
    Opening,
    Push,
    SendGradient,
    ServerStatus,
    StepOutcome,
)

META = Meta((2, 3), torch.bfloat16, requires_grad=True)
MODES = Modes(*(True, False), (("cpu", True, torch.bfloat16), ("cuda", False, torch.float16)), bytes(range(256)))
CALL = Call(
    1 << 40, 3, ("a", "b"), b"x\n[\n" * 3, ((4, True), (5, False)), ((4, META),), (Move(6, 9),), 7, MODES,
    ((1 << 64) - 1, 0), None, (1, 2),
)  # fmt: skip
MESSAGES: list[Any] = [
    None,
    CALL,
    CALL._replace(expected=12, arguments=b"", moves=(), free=()),
    Form(b"\n\n", (META, Meta((), torch.float32)), ((0, 1),)),
    Push(1, 2, META, 3, 4),
    Backward(1, 2, 3),
    SendGradient(1, 2, META, 3, 4),
    Expect(META, 3, 4),
    AddGradient(1, 2, 4),
    AddGradient(1, 2, 4, META),
    EndMicrobatch(5),
    Finish(),
    Hello('<lambda>."é\n', 7),
    Opening(None, (1 << 63) + 1),
    ServerStatus("Traceback\n\ud800", caused=False),
    StepOutcome(None, b"packed", (META,), 8, went_backward=True),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_decoded_message_equals_the_encoded_one(message: Any) -> None:
    decoded = codec.decode(codec.encode(message))
    assert decoded == message
    assert type(decoded) is type(message)
    assert all(type(one) is type(other) for one, other in zip(decoded or (), message or (), strict=True))


def test_every_type_of_message_is_tested() -> None:
    assert {type(each).__name__ for each in MESSAGES} == {"NoneType", *codec._TYPES}


class Hostile:
    """Raises KeyboardInterrupt when it is unpickled."""

    def __reduce__(self) -> Any:
        return _interrupt, ()


def _interrupt() -> None:
    raise KeyboardInterrupt


def message(name: str, *fields: Any, sizes: str = "[]") -> bytes:
    return f"{sizes}\n{json.dumps([name, fields])}\n".encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"[]\n[]\n",
        b"[]\n" + b"[" * 100_000 + b"\n",
        pickle.dumps(Hostile()),
        b"[]\n" + pickle.dumps(Hostile(), protocol=0) + b"\n",
        message("Backward", 1, 2),
        message("Backward", 1, 2, "3"),
        message("Backward", 1, 2, *[True]),
        message("Backward", 1, 2, 3.0),
        message("os.system", "true"),
        message("Push", 1, 2, [[2], "os", False], 3, 4),
        message("Push", 1, 2, [[2], "load", False], 3, 4),
        message("Push", 1, 2, ["23", "float32", False], 3, 4),
        message("Form", 0, [], []),
        message("Form", 1, [], [], sizes="[3]"),
        message("Opening", 5, 1),
        message("Hello", None, 1),
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(codec.NotAMessage, match="do all ranks have the same version of it"):
        codec.decode(data)
