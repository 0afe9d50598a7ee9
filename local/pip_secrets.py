"""What a job's `pip install` gets of this machine's network: its CA bundle, its package indexes, its wheels.

As a build gets them (images/build_network.py), and as little for good: files that only this user can read, in the
scratch folder, mounted read-only where a build has its secrets. Only pip's own variables name them, so the user's
program and the traffic between hosts are as they are on SageMaker.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from requests.utils import get_environ_proxies, select_proxy

from berth.contract import variables
from berth.images.build_network import PackageIndex, gather

_FOLDER = "/run/secrets"
_PYPI = "https://pypi.org/simple"
_VARIABLES = {"ca": "PIP_CERT", "pip": "PIP_CONFIG_FILE"}


@dataclass(frozen=True, slots=True)
class PipSecrets:
    """mounts: path in the container → path here, all read-only; environment: the variables that name them."""

    mounts: dict[str, Path] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def asks_for_packages(code: Path, environment: Mapping[str, str]) -> bool:
    """Whether a job of the source folder `code`, with these variables, calls pip (train/prepare.py)."""
    named = environment.get(variables.REQUIREMENTS, "").strip()
    return bool(named) or any((code / name).is_file() for name in ("requirements.txt", "setup.py"))


def write_pip_secrets(
    code: Path | None, environment: Mapping[str, str], scratch: Path, environ: Mapping[str, str]
) -> PipSecrets:
    """What the program in `code` gets, written below `scratch`; nothing where the job calls no pip. `environment`: the
    job's own variables; `environ`: this machine's.
    """
    if code is None or not asks_for_packages(code, environment):
        return PipSecrets()
    network = gather(environ)
    wheels = {f"/run/wheels-{number}": folder for number, folder in enumerate(network.index.folders)}
    secrets = {"pip": pip_conf(network.index, tuple(wheels), _proxy(network.index.url or _PYPI)).encode()}
    if network.ca is not None:
        secrets["ca"] = network.ca.read_bytes()
    here = scratch / "network"
    here.mkdir(mode=0o700)
    for name, content in secrets.items():
        with os.fdopen(os.open(here / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    return PipSecrets(
        mounts={f"{_FOLDER}/{name}": here / name for name in secrets} | wheels,
        environment={_VARIABLES[name]: f"{_FOLDER}/{name}" for name in secrets},
    )


def pip_conf(index: PackageIndex, wheels: tuple[str, ...], proxy: str | None) -> str:
    """pip's settings in the container, where this machine's folders of wheels are mounted as `wheels`."""
    return replace(index, links=(*index.links, *wheels)).pip_conf() + (f"proxy = {proxy}\n" if proxy else "")


def _proxy(index: str) -> str | None:
    """The proxy that this machine's variables name for the index, if any."""
    found: str | None = select_proxy(index, get_environ_proxies(index))
    return found
