"""The push of one image to one repository, with doubles of the engine, the registry and ECR."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import docker
import pytest

from berth.common.errors import UserError
from berth.ecr.push import one
from berth.ecr.push.context import PushContext
from berth.ecr.push.one import push_one
from berth.ecr.push.preflight import Preflight, PushTask
from berth.ecr.registry import referrers
from berth.ecr.registry.manifest import DOCKER_LAYER, DOCKER_MANIFEST, OCI_MANIFEST, Descriptor, Manifest, dumped
from berth.ecr.repositories import retention
from berth.ecr.repositories.repository_client import RepositoryClient
from tests.doubles.local_image import local_image

LAYER = Descriptor(DOCKER_LAYER, "sha256:" + "c" * 64, 1000)
CONFIG = Descriptor("application/vnd.docker.container.image.v1+json", "sha256:" + "0" * 64, 10)
MANIFEST = Manifest(DOCKER_MANIFEST, dumped({"config": CONFIG.as_dict(), "layers": [LAYER.as_dict()]}))
BILL = Manifest(OCI_MANIFEST, b"{}")
HERE = "127.0.0.1:5000/berth-train"
OCI = {"mediaType": "application/vnd.oci.image.index.v1+json"}
IMAGE = local_image({}, CONFIG.digest, RootFS={"Layers": ["sha256:" + "a" * 64]}, Descriptor=OCI)


@pytest.fixture
def push(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`push(ecr=…, bill=…, attach=…, tags=…)` runs a push whose layers arrive; it returns the result, printed lines,
    and the tags that our client has put.
    """
    monkeypatch.setattr(one, "_push_layers", lambda *_: frozenset({"c" * 12}))
    monkeypatch.setattr(one.verify, "verify_and_tag", lambda *_: MANIFEST)
    monkeypatch.setattr(one.verify, "put_tags", lambda *_: None)
    monkeypatch.setattr(one.referrers, "upload_blobs", lambda *_: None)
    bill_file = tmp_path / "bill.json"
    bill_file.write_text("{}")

    def run(
        ecr: Any = None,
        bill: Callable[[], Path] = lambda: bill_file,
        attach: Callable[..., Manifest] = lambda *_: BILL,
        tags: tuple[str, ...] = (),
    ) -> Any:
        monkeypatch.setattr(referrers, "attach", attach)
        put: list[tuple[str, str]] = []
        registry: Any = SimpleNamespace(
            host="127.0.0.1:5000",
            delete_tag=lambda *_: False,
            put_manifest=lambda _, tag, manifest: put.append((tag, manifest.digest)),
        )
        client = RepositoryClient(registry, "berth-train", lambda *, renew: None, ecr)
        task = PushTask(IMAGE, client, None, (IMAGE.push_tag, *tags), apply=False)
        printed: list[str] = []
        context = PushContext(MagicMock(), threading.Event(), printed.append)
        return push_one(context, Preflight(task), bill, threading.Lock()), printed, put

    return run


def test_push_result_has_sent_bytes_and_bill(push: Any) -> None:
    result, printed, put = push(tags=("1.0",))
    assert (result.bytes_sent, result.bytes_there) == (1000, 0)
    assert result.pushed.bill == {"file": "bill.json", "digest": BILL.digest}
    assert (printed, put) == ([], [])


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param({"attach": MagicMock(side_effect=UserError("INVALID."))}, id="registry-without-artifacts"),
        pytest.param(
            {"bill": MagicMock(side_effect=docker.errors.APIError("the logging driver does not support reading"))},
            id="engine-without-logs",
        ),
        pytest.param({"bill": MagicMock(side_effect=UserError("no Python in it."))}, id="image-without-python"),
    ],
)
def test_missing_bill_is_only_a_warning(push: Any, failure: dict[str, Any]) -> None:
    result, printed, _ = push(**failure)
    assert result.pushed.image_uri == f"{HERE}@{MANIFEST.digest}"
    assert result.pushed.bill is None
    (line,) = printed
    assert line.startswith(f"{HERE}: the image is pushed, its bill of materials is not attached: ")


def test_temporary_tag_that_stays_is_only_a_warning(push: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one.repository, "delete_tag", MagicMock(side_effect=UserError("it is not allowed.")))
    result, printed, put = push(ecr=object())
    assert put == []
    assert result.pushed.digest == MANIFEST.digest
    (line,) = printed
    assert "the temporary tag converting-" in line


def test_bill_of_a_release_in_ecr_gets_a_release_tag(push: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one.repository, "delete_tag", lambda *_: None)
    _, printed, put = push(ecr=object(), tags=("1.0",))
    assert printed == []
    assert put == [(retention.tag(BILL.digest), BILL.digest)]
