"""Which blobs of a promoted image go, and how."""

from pathlib import Path
from typing import Any

import pytest

from berth.common.errors import UserError
from berth.ecr import commands
from berth.ecr.promote import missing_blobs
from berth.ecr.registry.manifest import DOCKER_LAYER, Descriptor

SMALL, LARGE, MIDDLE = (
    Descriptor(DOCKER_LAYER, "sha256:" + name * 64, size) for name, size in zip("abc", (1, 9, 5), strict=True)
)


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        (set(), (LARGE, MIDDLE, SMALL)),
        ({LARGE.digest}, (MIDDLE, SMALL)),
        ({LARGE.digest, MIDDLE.digest, SMALL.digest}, ()),
    ],
)
def test_what_is_there_stays_and_the_largest_goes_first(there: set[str], missing: tuple[Descriptor, ...]) -> None:
    assert missing_blobs((SMALL, LARGE, MIDDLE), there) == missing


def test_a_source_that_is_not_there_creates_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[str] = []

    def absent(*_: Any) -> Any:
        raise UserError("there is no such image.")

    monkeypatch.setattr(commands.promote, "plan_copy", absent)
    monkeypatch.setattr(commands.repository, "describe", lambda *_: None)
    monkeypatch.setattr(commands.repository, "ensure", lambda client, wanted, *_, **__: made.append(wanted.name))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    host = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"
    with pytest.raises(UserError, match="no such image"):
        commands.promote_image(f"{host}/berth-train:0.1.9", f"{host}/team/released", dist=tmp_path)
    assert made == []
