"""A session of requests that sends a login only to its own host.

It never follows a redirect from https to http, and never takes a login from ~/.netrc.
"""

from urllib.parse import urljoin, urlsplit

import requests

from berth.common.errors import UserError
from berth.common.http import without_password
from berth.ecr.registry.addresses import origin


class RegistrySession(requests.Session):
    """Follows redirects like requests, but without the login to another origin, and never from https to http."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Removes the login on a redirect to another origin. The inherited method would also look into ~/.netrc for a
        login to the new host, where a `default` entry matches any host, such as the storage behind a registry.
        """
        if origin(str(prepared_request.url)) != origin(response.url):
            prepared_request.headers.pop("Authorization", None)

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """UserError for a redirect from https to http, which anybody on the way could read and change."""
        target = super().get_redirect_target(resp)
        if target is not None:
            stay_in_tls(resp.url, urljoin(resp.url, target))
        return target


def stay_in_tls(source: str, target: str) -> None:
    """UserError if `source` has TLS and redirects to a `target` without it."""
    if source.startswith("https:") and not target.lower().startswith("https:"):
        raise UserError(
            f"{urlsplit(source).netloc.rpartition('@')[2]} redirects from HTTPS to "
            f"{without_password(target)[:120]}: let the proxy in front of it set X-Forwarded-Proto."
        )


class Authorization(requests.auth.AuthBase):
    """Sets the given header, or none. Without it requests would take a login from ~/.netrc."""

    def __init__(self, header: str | None) -> None:
        self._header = header

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._header is not None:
            request.headers["Authorization"] = self._header
        return request
