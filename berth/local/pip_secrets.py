"""Passes this machine's CA bundle, package indexes and wheels to a job's `pip install`.

Like a build's (berth/images/network/build_network.py): files that only this user can read, in the scratch folder,
mounted read-only at the place of a build's secrets, and removed after the run. Only pip's own variables name them, so
the user's program and the traffic between hosts are as on SageMaker.
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
    """mounts: path in the container → path on this machine, all read-only; environment: variables that name them."""

    mounts: dict[str, Path] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def asks_for_packages(code: Path, environment: Mapping[str, str]) -> bool:
    """Whether a job with the source folder `code` and these variables calls pip (train/launching/prepare.py)."""
    named = environment.get(variables.REQUIREMENTS, "").strip()
    return bool(named) or any((code / name).is_file() for name in ("requirements.txt", "setup.py"))


def write_pip_secrets(
    code: Path | None, environment: Mapping[str, str], scratch: Path, environ: Mapping[str, str]
) -> PipSecrets:
    """Writes the files for the program in `code` below `scratch`; nothing if the job does not call pip.

    environment: the job's variables; environ: this machine's.
    """
    if code is None or not asks_for_packages(code, environment):
        return PipSecrets()
    network = gather(environ)
    wheels = {f"/run/wheels-{number}": folder for number, folder in enumerate(network.index.folders)}
    secrets = {"pip": pip_conf(network.index, tuple(wheels)).encode()}
    if network.ca is not None:
        secrets["ca"] = network.ca.read_bytes()
    folder = scratch / "network"
    folder.mkdir(mode=0o700)
    return PipSecrets(
        mounts={f"{_FOLDER}/{name}": write_private(folder / name, secrets[name]) for name in secrets} | wheels,
        environment={_VARIABLES[name]: f"{_FOLDER}/{name}" for name in secrets},
    )


def pip_conf(index: PackageIndex, wheels: tuple[str, ...]) -> str:
    """pip's settings in the container. wheels: the mounted folders of wheels. The proxy is pip's own, otherwise that of
    this machine's variables for the index.
    """
    url = index.url or _PYPI
    proxy = index.proxy or select_proxy(url, get_environ_proxies(url)) or ""
    return replace(index, links=(*index.links, *wheels), proxy=proxy).pip_conf()
