"""Settings for pip that are needed to install a user's packages on a closed network.

pip itself reads the index, the proxy and so on from the usual variables (PIP_INDEX_URL, …). `pip_environment` adds
certificates, wheels next to the requirements, and the cache of a warm pool. It reads files and writes none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CHANNEL = "certificates"
"""The channel of a training job with certificates that pip trusts. A certificate is too long for SageMaker's variables,
which hold 512 characters.
"""
_SYSTEMS = Path("/etc/ssl/certs/ca-certificates.crt")
_SUFFIXES = (".pem", ".crt")
_PEM = b"-----BEGIN CERTIFICATE-----"
# The first is pip's own; pip uses the others too, because the library requests in it reads them.
_BUNDLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
# https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html#train-warm-pools-persistent-cache
_WARM_POOL = "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"
_WARM_POOL_FOLDER = "/opt/ml/sagemaker/warmpoolcache"


@dataclass(frozen=True, slots=True)
class PipEnvironment:
    """arguments: for `pip install`. variables: to add to the environment. certificates: the only files that pip trusts;
    if empty, it trusts its default, the system's.
    """

    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    certificates: tuple[Path, ...]


def pip_environment(folder: Path, environ: Mapping[str, str], channel: Path | None = None) -> PipEnvironment:
    """The settings for the requirements in `folder`, to which relative paths refer.

    channel: a folder of certificates to trust in addition to the variable's, or else the system's.
    """
    wheels = any(folder.glob("*.whl"))
    return PipEnvironment(
        arguments=("--find-links", str(folder)) if wheels else (),
        variables=_cache(environ),
        certificates=_certificates(folder, environ, channel),
    )


def trust(bundle: Path) -> dict[str, str]:
    """The variables that make pip, and the pip that it starts to build a package, trust a file of certificates.

    Both are needed, because requests prefers REQUESTS_CA_BUNDLE, if it is set, to pip's own variable.
    """
    return {"PIP_CERT": str(bundle), "REQUESTS_CA_BUNDLE": str(bundle)}


def _certificates(folder: Path, environ: Mapping[str, str], channel: Path | None) -> tuple[Path, ...]:
    configured = next((environ[name] for name in _BUNDLES if environ.get(name)), "")
    added = _certificates_in(channel) if channel else ()
    if configured:
        bundle = folder / configured
        # requests accepts a folder as well, but only alone.
        return (*(_certificates_in(bundle) if added and bundle.is_dir() else (bundle,)), *added)
    systems = Path(environ.get("SSL_CERT_FILE") or _SYSTEMS)
    return (*((systems,) if systems.is_file() else ()), *added) if added else ()


def _certificates_in(folder: Path) -> tuple[Path, ...]:
    """The files with certificates as text (PEM) in a folder; keys and binary certificates are skipped."""
    files = (path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
    return tuple(sorted(path for path in files if _PEM in path.read_bytes()))


def _cache(environ: Mapping[str, str]) -> dict[str, str]:
    """Put pip's cache into the warm pool's folder, which outlives its jobs; without a warm pool, disable the cache."""
    if environ.get("PIP_CACHE_DIR") or environ.get("PIP_NO_CACHE_DIR"):
        return {}
    warm_cache = Path(environ.get(_WARM_POOL) or _WARM_POOL_FOLDER)
    return {"PIP_CACHE_DIR": str(warm_cache / "pip")} if warm_cache.is_dir() else {"PIP_NO_CACHE_DIR": "1"}
