"""The cache of `outdated`."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from berth.common.kept import Kept
from berth.images.inspect import advisories, outdated
from berth.images.inspect.debian import Update
from berth.images.inspect.outdated import Services
from berth.images.network.build_network import Network, PackageIndex
from berth.images.pins import pins_file
from tests.doubles.index_and_advisories import IndexAndAdvisoriesDouble

PINS = pins_file.load()


class AskedTwice:
    """Fakes of Debian's archive and pip-audit that record each request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: list[str] = []
        monkeypatch.setattr(advisories, "_run_audit", self._audit)
        monkeypatch.setattr(outdated.debian, "ask_archive", self._archive)

    def _audit(self, versions: dict[str, str], *_: object) -> dict[str, Any]:
        self.times.append("audit")
        known = [{"id": "PYSEC-1", "fix_versions": ["15.0"]}]
        return {"dependencies": [{"name": "rich", "version": "14.0.0", "vulns": known}]}

    def _archive(self, *_: object) -> list[Update]:
        self.times.append("archive")
        return [Update("libc6", "1", "2", security=True)]


def test_answers_are_cached_for_an_hour(service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = AskedTwice(monkeypatch)
    (tmp_path / "locks/cpu").mkdir(parents=True)
    (tmp_path / "locks/cpu/deps-serve.txt").write_text("rich==14.0.0\nunheard-of==1.0\n")
    image = SimpleNamespace(id="sha256:1")
    client: Any = SimpleNamespace(images=SimpleNamespace(get=lambda name: image))
    network = Network(None, PackageIndex(url=f"{service}/simple"), (), "", "", "")
    services = Services(network, connect=lambda: client, answers=Kept(tmp_path / "answers", 9, 3600))
    find = partial(
        outdated.find_outdated, PINS, ["cpu"], services, images=["berth-serve:cpu"], locks=tmp_path / "locks"
    )
    first = find()
    assert first.insecure
    IndexAndAdvisoriesDouble.asked.clear()
    assert find() == first
    assert sorted(asked.times) == ["archive", "audit"]
    assert IndexAndAdvisoriesDouble.asked == ["/simple/unheard-of/"], "a failed request is not cached"
    image.id = "sha256:2"
    find()
    assert asked.times.count("archive") == 2, "another image is a separate request"
