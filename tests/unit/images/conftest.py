"""Asks pip for this machine's settings once; a call takes half a second, and tests change other variables."""

import os
from collections.abc import Mapping

import pytest

from berth.images.network import build_network
from berth.images.network.pip_settings import read_pip_settings


@pytest.fixture(autouse=True)
def machines_pip_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that pass variables of their own still ask pip."""

    def read(environ: Mapping[str, str]) -> dict[str, str]:
        if environ is not os.environ:
            return read_pip_settings(environ)
        pip = {name: value for name, value in environ.items() if name.startswith(("PIP_", "XDG_CONFIG"))}
        return read_pip_settings({"PATH": os.defpath, "HOME": environ.get("HOME", ""), **pip})

    monkeypatch.setattr(build_network, "read_pip_settings", read)
