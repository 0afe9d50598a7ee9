"""Access to a repository: the client of its registry, and ECR's API if it is in ECR."""

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
    """A repository, its registry, and the login to it. ecr: a client of ECR's API, None for another registry."""

    destination: Destination
    registry: Registry
    login: Login
    ecr: Any = None

    @property
    def name(self) -> str:
        """The repository's name, without the registry's host."""
        return self.destination.repository

    def __str__(self) -> str:
        return str(self.destination)


def open_repositories(
    destinations: Sequence[Destination], aws: Aws, say: Callable[[str], None], info: Mapping[str, Any] | None = None
) -> list[RepositoryClient]:
    """A client for each destination; those of one registry share connections and login. No request is sent yet.

    info: of the engine that pushes; it lists the registries for which it uses plain HTTP.
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
