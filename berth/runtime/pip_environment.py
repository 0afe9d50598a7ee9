"""What pip gets beyond its own settings, to install a user's packages on a closed network.

An index, a proxy and the like it reads by itself, from the usual variables (PIP_INDEX_URL, …). `pip_environment`
decides about the rest, looks at files and writes none: certificates, wheels next to the requirements, the cache of a
warm pool.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CHANNEL = "certificates"
"""The channel of a training job whose certificates pip trusts: a variable of SageMaker's holds 512 characters, too few
for one.
"""
_SYSTEMS = Path("/etc/ssl/certs/ca-certificates.crt")
_SUFFIXES = (".pem", ".crt")
_PEM = b"-----BEGIN CERTIFICATE-----"
# Whoever sets the first means pip; the others count for pip as well, since requests, inside of it, reads them.
_BUNDLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
# https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html#train-warm-pools-persistent-cache
_WARM_POOL = "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"
_WARM_POOL_FOLDER = "/opt/ml/sagemaker/warmpoolcache"


@dataclass(frozen=True, slots=True)
class PipEnvironment:
    """arguments: of `pip install`. variables: besides the present ones. certificates: the files that pip trusts, all
    of them and no others; without any it trusts what it would anyway, the system's.
    """

    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    certificates: tuple[Path, ...]


def pip_environment(folder: Path, environ: Mapping[str, str], channel: Path | None = None) -> PipEnvironment:
    """What pip gets for the requirements in `folder`; relative paths are of there. `channel` is a folder of
    certificates, trusted next to those that a variable names, or else the system's.
    """
    wheels = any(folder.glob("*.whl"))
    return PipEnvironment(
        arguments=("--find-links", str(folder)) if wheels else (),
        variables=_cache(environ),
        certificates=_certificates(folder, environ, channel),
    )


def trust(bundle: Path) -> dict[str, str]:
    """The variables by which pip, and the pip that it calls to build a package, trust the certificates of a file.

    Both, for requests takes REQUESTS_CA_BUNDLE, where it is set, before pip's own.
    """
    return {"PIP_CERT": str(bundle), "REQUESTS_CA_BUNDLE": str(bundle)}


def _certificates(folder: Path, environ: Mapping[str, str], channel: Path | None) -> tuple[Path, ...]:
    named = next((environ[name] for name in _BUNDLES if environ.get(name)), "")
    added = _of_folder(channel) if channel else ()
    if named:
        bundle = folder / named
        # requests takes a folder as well, but not next to a file.
        return (*(_of_folder(bundle) if added and bundle.is_dir() else (bundle,)), *added)
    systems = Path(environ.get("SSL_CERT_FILE") or _SYSTEMS)
    return (*((systems,) if systems.is_file() else ()), *added) if added else ()


def _of_folder(folder: Path) -> tuple[Path, ...]:
    """The files with a certificate as text: a key next to it, or the same in binary, is none that pip can trust."""
    files = (path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
    return tuple(sorted(path for path in files if _PEM in path.read_bytes()))


def _cache(environ: Mapping[str, str]) -> dict[str, str]:
    """pip's cache in the folder that outlives the jobs of a warm pool; without one, none, for a container ends."""
    if environ.get("PIP_CACHE_DIR") or environ.get("PIP_NO_CACHE_DIR"):
        return {}
    kept = Path(environ.get(_WARM_POOL) or _WARM_POOL_FOLDER)
    return {"PIP_CACHE_DIR": str(kept / "pip")} if kept.is_dir() else {"PIP_NO_CACHE_DIR": "1"}
