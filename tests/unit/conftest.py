"""Unit tests see no Docker engine, and none of the developer's own settings of pip, uv, AWS, Docker and proxies."""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import hypothesis
import pytest

from berth.images.pins import pins

# On a busy machine an example may take a second: time is measured in bench/.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

PREFIXES = ("PIP_", "UV_", "AWS_", "SAGEMAKER_", "BERTH_", "SM_", "DOCKER_")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
# The Makefile sets these variables to the paths of the tests' data and tools.
KEPT = ("BERTH_REFERENCE_PYTHON", "BERTH_SQUAD")


@pytest.fixture(autouse=True)
def stripped_environment(no_credentials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """no_credentials comes first, because the one that is set up first is undone last and must restore everything."""
    for name in os.environ:
        ours = name.startswith(PREFIXES) or name.upper() in PROXIES
        if ours and name not in KEPT:
            monkeypatch.delenv(name)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/engine.sock")


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """build.py, which is in no package."""
    spec = spec_from_file_location("berth_command_line", pins.ROOT / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module
