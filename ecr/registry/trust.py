"""The CAs for a registry's certificate: the environment's CA bundle, and the engine's folder for this registry."""

import ssl
from pathlib import Path
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context

from berth.common.errors import UserError

CERTIFICATES = Path("/etc/docker/certs.d")
"""The Docker engine's folder of CAs: it has a folder for each HOST or HOST:PORT, with *.crt files in PEM."""


class Adapter(HTTPAdapter):
    """Connections that trust the CAs in this folder, and those of the environment's bundle, which requests adds.

    UserError if a *.crt file of the folder is not a certificate.
    """

    def __init__(self, folder: Path) -> None:
        self._context = _context(folder)
        super().__init__(pool_maxsize=16)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=self._context, **kwargs)


def _context(folder: Path) -> ssl.SSLContext:
    """A context that trusts the CAs in this folder, which may be missing."""
    context = create_urllib3_context()
    try:
        for path in sorted(folder.glob("*.crt")):
            try:
                context.load_verify_locations(path)
            except ssl.SSLError:
                raise UserError(
                    f"{path} is not a PEM certificate: put the registry's CA there, or remove it."
                ) from None
    except OSError as error:
        raise UserError(f"{folder} can't be read ({error.strerror}): let this user read its files.") from None
    return context


def untrusted(host: str, folder: Path, error: ssl.SSLCertVerificationError) -> str:
    """Why the certificate of a host was refused, and what to do; folder: of its CAs."""
    # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID, _HAS_EXPIRED, _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH.
    why = error.verify_message.rstrip(".")
    if error.verify_code in (9, 10):
        return f"the certificate of {host} is not valid now ({why}): have it renewed, or set this machine's clock."
    if error.verify_code in (62, 64):
        return f"the certificate of {host} is for another name ({why}): use a name that is in the certificate."
    return (
        f"the certificate of {host} is not trusted ({why}): put its CA into {folder}/ca.crt, which the Docker engine "
        "reads, too, or into the bundle that REQUESTS_CA_BUNDLE names."
    )
