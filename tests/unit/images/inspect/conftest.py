"""Fixtures for the tests of `outdated`."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.doubles.http_server import serving
from tests.doubles.index_and_advisories import IndexAndAdvisoriesDouble


def file(name: str, python: str | None = ">=3.8", yanked: bool | str = False) -> dict[str, Any]:
    return {"filename": name, "requires-python": python, "yanked": yanked}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the double; its index has rich and torch, and it knows no vulnerability."""
    releases = {
        "rich": [file("rich-15.0.0-py3-none-any.whl")],
        "torch": [file("torch-2.13.0-cp311-cp311-linux_x86_64.whl")],
    }
    for name, value in {"releases": releases, "vulnerable": {}, "asked": [], "status": 200, "body": None}.items():
        monkeypatch.setattr(IndexAndAdvisoriesDouble, name, value)
    with serving(IndexAndAdvisoriesDouble) as address:
        yield address
