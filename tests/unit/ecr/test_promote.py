"""Blobs that a promotion sends, and a missing source."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from berth.common.errors import UserError
from berth.ecr import commands
from berth.ecr.promote import missing_blobs
from berth.ecr.registry.manifest import DOCKER_LAYER, Descriptor

SMALL, LARGE, MIDDLE = (
    Descriptor(DOCKER_LAYER, "sha256:" + name * 64, size) for name, size in zip("abc", (1, 9, 5), strict=True)
)


@pytest.mark.parametrize(
    ("existing", "missing"),
    [
        (set(), (LARGE, MIDDLE, SMALL)),
        ({LARGE.digest}, (MIDDLE, SMALL)),
        ({LARGE.digest, MIDDLE.digest, SMALL.digest}, ()),
    ],
)
def test_missing_blobs_are_sorted_largest_first(existing: set[str], missing: tuple[Descriptor, ...]) -> None:
    assert missing_blobs((SMALL, LARGE, MIDDLE), existing) == missing


@pytest.mark.usefixtures("credentials")
def test_promotion_of_a_missing_image_creates_no_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    created: list[str] = []
    monkeypatch.setattr(commands.promote, "plan_copy", MagicMock(side_effect=UserError("there is no such image.")))
    monkeypatch.setattr(commands.repository, "describe", lambda *_: None)
    monkeypatch.setattr(commands.repository, "ensure", lambda client, wanted, *_, **__: created.append(wanted.name))
    host = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"
    with pytest.raises(UserError, match="no such image"):
        commands.promote_image(f"{host}/berth-train:0.1.9", f"{host}/team/released", dist=tmp_path)
    assert created == []
