"""Whose certificates a registry may show: those of the environment's CA bundle, and of the engine's folder for it."""

import ssl
from pathlib import Path
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context

from berth.common.errors import UserError

CERTIFICATES = Path("/etc/docker/certs.d")
"""Where the Docker engine looks for CAs: a folder for each HOST or HOST:PORT, with *.crt files in PEM."""


class Adapter(HTTPAdapter):
    """Connections that trust the CAs of this folder next to the environment's bundle, which requests adds itself.

    UserError where a file of the folder is no certificate.
    """

    def __init__(self, folder: Path) -> None:
        self._context = _context(folder)
        super().__init__(pool_maxsize=16)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=self._context, **kwargs)


def _context(folder: Path) -> ssl.SSLContext:
    """Trusts the CAs of this folder, of which there may be none."""
    context = create_urllib3_context()
    try:
        for path in sorted(folder.glob("*.crt")):
            try:
                context.load_verify_locations(path)
            except ssl.SSLError:
                raise UserError(f"{path} is no PEM certificate: put the registry's CA there, or remove it.") from None
    except OSError as error:
        raise UserError(f"{folder} can't be read ({error.strerror}): let this user read what is there.") from None
    return context


def untrusted(host: str, folder: Path, error: ssl.SSLCertVerificationError) -> str:
    """Why the certificate of a host was refused, and what to do; folder: where its CA is looked for."""
    # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID, _HAS_EXPIRED, _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH.
    why = error.verify_message.rstrip(".")
    if error.verify_code in (9, 10):
        return f"the certificate of {host} is out of date ({why}): have it renewed, or set this machine's clock."
    if error.verify_code in (62, 64):
        return f"the certificate of {host} is for another name ({why}): call the registry by a name that stands in it."
    return (
        f"the certificate of {host} is not trusted ({why}): put its CA into {folder}/ca.crt, where the Docker engine "
        "looks as well, or into the bundle that REQUESTS_CA_BUNDLE names."
    )
