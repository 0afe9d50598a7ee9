"""What a job's `pip install` gets of this machine's network: its CA bundle, its package indexes, its wheels.

As a build gets them (berth/images/network/build_network.py), and as little for good: files that only this user can
read, in the scratch folder, mounted read-only where a build has its secrets. Only pip's own variables name them, so the
user's program and the traffic between hosts are as they are on SageMaker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from requests.utils import get_environ_proxies, select_proxy

from berth.common.files import write_private
from berth.contract import variables
from berth.images.network.build_network import PackageIndex, gather

_FOLDER = "/run/secrets"
_PYPI = "https://pypi.org/simple"
_VARIABLES = {"ca": "PIP_CERT", "pip": "PIP_CONFIG_FILE"}


@dataclass(frozen=True, slots=True)
class PipSecrets:
    """mounts: path in the container → path here, all read-only; environment: the variables that name them."""

    mounts: dict[str, Path] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def asks_for_packages(code: Path, environment: Mapping[str, str]) -> bool:
    """Whether a job of the source folder `code`, with these variables, calls pip (train/launching/prepare.py)."""
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
    secrets = {"pip": pip_conf(network.index, tuple(wheels)).encode()}
    if network.ca is not None:
        secrets["ca"] = network.ca.read_bytes()
    here = scratch / "network"
    here.mkdir(mode=0o700)
    return PipSecrets(
        mounts={f"{_FOLDER}/{name}": write_private(here / name, secrets[name]) for name in secrets} | wheels,
        environment={_VARIABLES[name]: f"{_FOLDER}/{name}" for name in secrets},
    )


def pip_conf(index: PackageIndex, wheels: tuple[str, ...]) -> str:
    """pip's settings in the container, where this machine's folders of wheels are mounted as `wheels`; the proxy is
    pip's own, else the one that this machine's variables name for the index.
    """
    url = index.url or _PYPI
    proxy = index.proxy or select_proxy(url, get_environ_proxies(url)) or ""
    return replace(index, links=(*index.links, *wheels), proxy=proxy).pip_conf()
