"""The way into a repository: the registry's own interface, and ECR's control plane where it is AWS's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from berth.ecr.registry.addresses import takes_plain_http
from berth.ecr.registry.challenge import Login
from berth.ecr.registry.client import Registry
from berth.ecr.registry.transport import Transport
from berth.ecr.repositories.aws import Aws
from berth.ecr.repositories.destination import Destination
from berth.ecr.repositories.login import StoredLogin


@dataclass(frozen=True)
class RepositoryClient:
    """A repository, the registry that it is in, and the login there; `ecr` is None where that is not AWS's."""

    destination: Destination
    registry: Registry
    login: Login
    ecr: Any = None

    @property
    def name(self) -> str:
        """Without the registry's host."""
        return self.destination.repository

    def __str__(self) -> str:
        return str(self.destination)


def open_repositories(
    destinations: Sequence[Destination], aws: Aws, say: Callable[[str], None], info: Mapping[str, Any] | None = None
) -> list[RepositoryClient]:
    """A client of each; those of one registry share its connections and its login. No registry is asked yet.

    info: of the engine that pushes, for the registries with which it speaks plain HTTP.
    """
    clients: dict[str, RepositoryClient] = {}
    for each in destinations:
        if each.host not in clients:
            login = StoredLogin(each.host) if each.ecr is None else aws.login(each.ecr.region, fips=each.ecr.fips)
            ecr = None if each.ecr is None else aws.ecr(each.ecr)
            plain_http = each.ecr is None and takes_plain_http(each.host, info or {})
            transport = Transport(each.host, login, say=say, plain_http=plain_http)
            clients[each.host] = RepositoryClient(each, Registry(transport), login, ecr)
    return [replace(clients[each.host], destination=each) for each in destinations]
