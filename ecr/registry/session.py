"""A session of requests that keeps a login with the host that it is for.

No other host gets it, nobody is asked without TLS who was asked with it, and none is looked for in ~/.netrc.
"""

from urllib.parse import urljoin, urlsplit

import requests

from berth.common.errors import UserError
from berth.common.http import without_password
from berth.ecr.registry.addresses import origin


class RegistrySession(requests.Session):
    """Follows redirects as requests does, but takes no login to another host, and never leaves TLS."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Takes the login off on the way to another origin. That of requests would look into ~/.netrc for one of the
        new host, and a `default` entry there holds for any: the store behind a registry is none of its business.
        """
        if origin(str(prepared_request.url)) != origin(response.url):
            prepared_request.headers.pop("Authorization", None)

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """UserError for one from https to http: what it leads to could be read and changed by anybody on the way."""
        target = super().get_redirect_target(resp)
        if target is not None:
            stay_in_tls(resp.url, urljoin(resp.url, target))
        return target


def stay_in_tls(asked: str, url: str) -> None:
    """UserError where somebody who was asked over HTTPS sends on to a URL without it."""
    if asked.startswith("https:") and not url.lower().startswith("https:"):
        raise UserError(
            f"{urlsplit(asked).netloc.rpartition('@')[2]} is asked over HTTPS and sends on to "
            f"{without_password(url)[:120]}: let the proxy in front of it set X-Forwarded-Proto."
        )


class Authorization(requests.auth.AuthBase):
    """Sets the header that it is given, or none; without it requests would take a login from ~/.netrc."""

    def __init__(self, header: str | None) -> None:
        self._header = header

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._header is not None:
            request.headers["Authorization"] = self._header
        return request
