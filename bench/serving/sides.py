"""What is compared: inference images of ours, each with its model and variables, and the peer's.

The peer is what one takes to serve a model of transformers on SageMaker without an image of one's own: the toolkit of
Hugging Face's containers on Multi Model Server, as these have it, with as many workers as it chooses by itself. It is
installed for the measurement, from the package index, and removed again. Its /ping is healthy as soon as its port is
open, seconds before its workers have the model: how soon it is ready is in its first answer.
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

from bench.plain import PlainImage, build_plain
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
    "transformers==4.57.*",  # the last that has the pipeline which the toolkit calls
    "setuptools<80",  # for pkg_resources, which the server imports
)
_SHOWN = ("sagemaker-huggingface-inference-toolkit", "multi-model-server", "transformers", "torch", "numpy")


@dataclass(frozen=True, slots=True)
class Side:
    """One column of a report: what runs, with which model (a folder) and which variables."""

    name: str
    image: str
    model: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def parse_environment(words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, each; UserError for what is not."""
    for word in words:
        if not re.fullmatch(r"\w+=.*", word, re.DOTALL):
            raise UserError(f"{word!r} is no variable: write NAME=VALUE.")
    return dict(word.split("=", 1) for word in words)


def parse_variant(words: Sequence[str], default: Side) -> Side:
    """A side out of `NAME [image=IMAGE] [model=PATH] [VARIABLE=VALUE …]`; what it leaves open is as in `default`, but
    for the variables, of which it has its own only.
    """
    name, *settings = words
    if not re.fullmatch(r"[a-zA-Z0-9][\w.-]*", name) or name in (PEER, default.name):
        raise UserError(
            f"{name!r} can't name a variant: take letters and digits, and neither {PEER} nor {default.name}."
        )
    given = parse_environment(settings)
    image, model = given.pop("image", default.image), Path(given.pop("model", default.model))
    return Side(name, image, model, given)


def model_at_hand(model: Path, scratch: Path) -> Path:
    """The folder with a model's files, of a folder or a model.tar.gz; an archive is unpacked below `scratch`."""
    return archive.model_home(archive.model_folder(model, scratch), model, tokenizer=True).absolute()


@contextmanager
def peer(client: DockerClient, model: Path) -> Iterator[Side]:
    """The peer, built for the length of a `with` block; what BuildKit keeps makes it a matter of seconds again."""
    kit = pins_file.load()
    profile = kit.profile(pins.DEFAULT_PROFILE)
    base = find_base(client, kit, os.environ.get(VARIABLE), lambda line: None)
    build_plain(PlainImage(_PEER_TAG, _PEER_APT, (*_PEER_PIP, f"torch=={profile.torch}")), profile, base)
    try:
        yield Side(PEER, _PEER_TAG, model, {"HF_TASK": "question-answering"})
    finally:
        client.images.remove(_PEER_TAG, force=True)


def require_image(client: DockerClient, name: str) -> Image:
    """An image of the engine; of one that is missing the UserError says the command that builds it."""
    return engine.find_image(client, name, list(pins_file.load().profiles))


def describe(client: DockerClient, side: Side) -> str:
    """What is in a side's image, and how it is run, in a line."""
    found = require_image(client, side.image).labels
    if side.name == PEER:
        said = client.containers.run(side.image, ["pip", "list", "--format", "json"], remove=True, stderr=False)
        listed = {each["name"].lower(): each["version"] for each in json.loads(said)}
        parts = [f"{name} {listed[name]}" for name in _SHOWN if name in listed]
        parts.append("Java 17")
    else:
        parts = [f"{side.image} ({labels.exact(found, found.get(labels.PROFILE, 'none'))})"]
        parts += [f"{name} {found[f'berth.{name}']}" for name in ("torch", "transformers") if f"berth.{name}" in found]
    parts += [f"{name}={value}" for name, value in side.environment.items()]
    return ", ".join(parts)
