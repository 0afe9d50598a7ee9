"""The compared images: ours, with its model and variables, and the peer's.

The peer is what a user without an own image takes to serve a transformers model on SageMaker: Hugging Face's inference
toolkit on Multi Model Server, with as many workers as it chooses by itself. It is installed from the package index for
the measurement and removed afterwards. Its /ping is healthy as soon as the port is open, seconds before its workers
have loaded the model; its time to the first answer shows when it is ready.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from docker import DockerClient
from docker.models.images import Image

from bench.plain import build_plain
from berth.common import engine, labels
from berth.common.errors import UserError
from berth.images.build.base import VARIABLE, find_base
from berth.images.pins import pins, pins_file
from berth.local import archive

PEER = "peer"
_PEER_TAG = "berth-bench-peer:cpu"
_PEER_APT = ("python3", "python3-pip", "openjdk-17-jre-headless")
_PEER_PIP = (
    "sagemaker-huggingface-inference-toolkit==2.6.0",
    "multi-model-server==1.1.11",
    "transformers==4.57.*",  # 5.3 removed the pipeline that the toolkit calls
    "setuptools<80",  # for pkg_resources, which the server imports
)
_SHOWN = ("sagemaker-huggingface-inference-toolkit", "multi-model-server", "transformers", "torch", "numpy")


@dataclass(frozen=True, slots=True)
class Side:
    """One column of the results: an image, its model (a folder) and its variables."""

    name: str
    image: str
    model: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def parse_environment(words: Sequence[str]) -> dict[str, str]:
    """The variables of words like NAME=VALUE; UserError for any other word."""
    for word in words:
        if not re.fullmatch(r"\w+=.*", word, re.DOTALL):
            raise UserError(f"{word!r} is not a variable: write NAME=VALUE.")
    return dict(word.split("=", 1) for word in words)


def parse_variant(words: Sequence[str], default: Side) -> Side:
    """The side that `NAME [image=IMAGE] [model=PATH] [VARIABLE=VALUE …]` describes. Image and model default to those of
    `default`; its variables are not inherited.
    """
    name, *settings = words
    if not re.fullmatch(r"[a-zA-Z0-9][\w.-]*", name) or name in (PEER, default.name):
        raise UserError(f"{name!r} can't name a variant: use letters and digits, but not {PEER} or {default.name}.")
    options = parse_environment(settings)
    image, model = options.pop("image", default.image), Path(options.pop("model", default.model))
    return Side(name, image, model, options)


def model_folder(model: Path, scratch: Path) -> Path:
    """The folder with the model's files; an archive is unpacked in `scratch`."""
    return archive.model_home(archive.model_folder(model, scratch), model, tokenizer=True).absolute()


@contextmanager
def peer(client: DockerClient, model: Path) -> Iterator[Side]:
    """Build the peer's image for a `with` block. BuildKit's cache makes the next build quick."""
    loaded_pins = pins_file.load()
    profile = loaded_pins.profile(pins.DEFAULT_PROFILE)
    base = find_base(client, loaded_pins, os.environ.get(VARIABLE), lambda line: None)
    build_plain(_PEER_TAG, _PEER_APT, (*_PEER_PIP, f"torch=={profile.torch}"), profile, base)
    try:
        yield Side(PEER, _PEER_TAG, model, {"HF_TASK": "question-answering"})
    finally:
        client.images.remove(_PEER_TAG, force=True)


def require_image(client: DockerClient, name: str) -> Image:
    """An image of the engine. If it is missing, the UserError names the command that builds it."""
    return engine.find_image(client, name, list(pins_file.load().profiles))


def describe(client: DockerClient, side: Side) -> str:
    """One line with the versions in a side's image and its variables."""
    image_labels = require_image(client, side.image).labels
    if side.name == PEER:
        printed = client.containers.run(side.image, ["pip", "list", "--format", "json"], remove=True, stderr=False)
        listed = {each["name"].lower(): each["version"] for each in json.loads(printed)}
        parts = [f"{name} {listed[name]}" for name in _SHOWN if name in listed]
        parts.append("Java 17")
    else:
        parts = [f"{side.image} ({labels.exact(image_labels, image_labels.get(labels.PROFILE, 'none'))})"]
        parts += [
            f"{name} {image_labels[f'berth.{name}']}"
            for name in ("torch", "transformers")
            if f"berth.{name}" in image_labels
        ]
    parts += [f"{name}={value}" for name, value in side.environment.items()]
    return ", ".join(parts)
