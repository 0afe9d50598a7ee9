"""The base of a build: the requested or the pinned one, pulled if missing, never replaced by another."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import ConnectionError as RequestsConnectionError
from requests.exceptions import ReadTimeout

from berth.common import engine
from berth.common.errors import UserError
from berth.images.build import base
from berth.images.build.plan import Base
from berth.images.pins import pins, pins_file
from tests.doubles.http_server import QuietHandler, serving

PINS = pins_file.load()
PINNED, IMPORTED = PINS.base_image, PINS.imported_base
RATE_LIMIT = "toomanyrequests: You have reached your pull rate limit"
NO_HELPER = "Credentials store error: docker-credential-desktop not installed"


class Engine:
    """A fake engine with the images `local`; its registry has the images `registry` or raises `error`."""

    def __init__(self, local: tuple[str, ...] = (), registry: tuple[str, ...] = (), error: Exception | None = None):
        self.local, self.registry, self.error = dict.fromkeys(local, "sha256:0"), registry, error
        self.pulled: list[str] = []
        self.images = self

    def get(self, name: str) -> Any:
        if name not in self.local:
            raise ImageNotFound("no")
        return SimpleNamespace(id=self.local[name], attrs={"Os": "linux", "Architecture": "amd64"})

    def pull(self, reference: str, _: float) -> list[dict[str, str]]:
        found = [each for each in self.registry if each == reference]
        if self.error:
            raise self.error
        if not found:
            return [{"status": "Pulling"}, {"error": "manifest unknown."}]
        self.pulled += found
        self.local[found[0]] = "sha256:1"
        return [{"status": "Downloaded"}]

    def get_registry_data(self, name: str) -> None:
        if name not in self.registry:
            raise APIError("manifest unknown")


def found_base(local: Any, requested: str | None = None) -> tuple[Base, list[str]]:
    lines: list[str] = []
    with patch.object(engine, "pull", local.pull):
        return base.find_base(local, PINS, requested, lines.append), lines


def test_pinned_base_is_pulled_once() -> None:
    local = Engine(registry=(PINNED,))
    assert found_base(local)[0].reference == PINNED
    assert (found_base(local)[1], local.pulled) == ([], [PINNED])


def test_imported_base_never_replaces_the_pinned_one() -> None:
    """An imported base may be left from an older pin or from a failed pull."""
    local = Engine(local=(IMPORTED, "debian:older"), registry=(PINNED,))
    assert found_base(local)[0].reference == PINNED
    assert local.pulled == [PINNED]
    with pytest.raises(UserError):
        found_base(Engine(local=(IMPORTED,)))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, "manifest unknown"),
        (APIError("429", explanation=RATE_LIMIT), RATE_LIMIT),
        (DockerException(NO_HELPER), "docker-credential-desktop, which Docker's config.json names, is not installed: "),
        (ReadTimeout("Read timed out."), "no answer: Read timed out"),
        (RequestsConnectionError("broken pipe"), "no answer: broken pipe"),
    ],
)
def test_failed_pull_is_reported_with_remedies(error: Exception | None, expected: str) -> None:
    with pytest.raises(UserError) as refusal:
        found_base(Engine(error=error))
    sentence = str(refusal.value)
    assert sentence.startswith(f"the base image {PINNED} is not on the engine and can't be pulled ({expected}")
    assert ["`python build.py base`" in sentence, f"--base-image {IMPORTED}" in sentence] == [True, True]


def test_requested_base_is_logged_on_every_build() -> None:
    local = Engine(local=(IMPORTED,))
    for _ in range(2):
        found, lines = found_base(local, IMPORTED)
        assert found.reference == IMPORTED
        assert len(lines) == 1
        assert IMPORTED in lines[0]
        assert found.digest in lines[0]
    assert found_base(Engine(local=(PINNED,)), PINNED)[1] == []


@pytest.mark.parametrize(
    ("local", "registry", "used", "makes"),
    [
        ((PINNED, IMPORTED), (), PINNED, False),
        ((), (PINNED,), PINNED, False),
        ((IMPORTED,), (PINNED,), PINNED, False),
        ((IMPORTED,), (), IMPORTED, False),
        ((), (), IMPORTED, True),
    ],
)
def test_base_for_builds_prefers_the_pinned_base(
    local: tuple[str, ...], registry: tuple[str, ...], used: str, makes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    double: Any = Engine(local, registry)
    made: list[str] = []
    lines: list[str] = []

    def make_base(*_: object) -> Base:
        made.append(IMPORTED)
        return Base(IMPORTED, "sha256:0")

    monkeypatch.setattr(engine, "connect", lambda timeout_s: double)
    monkeypatch.setattr(base, "make_base", make_base)
    assert base.base_for_builds(double, PINS, lines.append) == used
    assert (bool(made), len(lines)) == (makes, int(used == IMPORTED))
    assert double.pulled == [], "only the build pulls it"


def test_make_base_uses_this_networks_mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The script is run by `sh`, because a checkout may have lost the mode bits of scripts."""
    source = "deb http://me:s3cret@m/debian bookworm main"
    script = 'printf \'{"tag": "%s", "docker": "%s", "sources": "%s"}\' "$1" "$DOCKER" "$(cat "$2")" >"$0.ran"\n'
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "base.sh").write_text(script)
    monkeypatch.setattr(pins, "ROOT", tmp_path)
    monkeypatch.setattr(pins, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(engine, "find_client", lambda: Path("/bin/docker"))
    monkeypatch.setattr("berth.images.network.apt.source_files", lambda: [("a.list", source)])
    local: Any = Engine(local=(IMPORTED,))
    assert base.make_base(local, PINS).reference == IMPORTED
    ran = json.loads((tmp_path / "docker" / "base.sh.ran").read_text())
    assert ran == {"tag": IMPORTED, "docker": "/bin/docker", "sources": source}
    assert list((tmp_path / "cache").iterdir()) == [], "the file with the mirror's password must be removed"
    (tmp_path / "docker" / "base.sh").write_text("exit 1\n")
    with pytest.raises(UserError, match="the base image could not be made"):
        base.make_base(local, PINS)


def test_pull_from_silent_registry_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine accepts the pull and sends nothing; the SDK would wait for ever."""
    monkeypatch.setattr(base, "PULL_SILENCE_S", 0.5)

    class Silent(QuietHandler):
        def do_GET(self) -> None:
            self.answer(200, b'{"ApiVersion": "1.41"}')

        def do_POST(self) -> None:
            ended.wait(60)

    ended = threading.Event()
    with serving(Silent) as address:
        monkeypatch.setenv("DOCKER_HOST", address.replace("http:", "tcp:"))
        assert base._pull(PINNED).startswith("no answer: ")
        ended.set()
