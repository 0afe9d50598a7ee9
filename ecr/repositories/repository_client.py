"""Access to a repository: the client of its registry, and ECR's API if it is in ECR."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from berth.ecr.registry.addresses import takes_plain_http
from berth.ecr.registry.challenge import Login
from berth.ecr.registry.client import Registry
from berth.ecr.registry.references import Reference
from berth.ecr.registry.transport import Transport
from berth.ecr.repositories.aws import Aws
from berth.ecr.repositories.login import StoredLogin
from berth.ecr.repositories.names import parse_host


@dataclass(frozen=True)
class RepositoryClient:
    """A repository of a registry. name: without the host; ecr: a client of ECR's API, None for another registry, in
    which berth creates no repositories.
    """

    registry: Registry
    name: str
    login: Login
    ecr: Any = None

    def __str__(self) -> str:
        return f"{self.registry.host}/{self.name}"


def open_repositories(
    repositories: Sequence[Reference], aws: Aws, say: Callable[[str], None], info: Mapping[str, Any] | None = None
) -> list[RepositoryClient]:
    """A client for each repository; those of one registry share connections and login. No request is sent yet.

    info: of the engine that pushes; it lists the registries for which it uses plain HTTP.
    """
    clients: dict[str, RepositoryClient] = {}
    for each in repositories:
        if each.host not in clients:
            found = parse_host(each.host)
            login = StoredLogin(each.host) if found is None else aws.login(found.region, fips=found.fips)
            ecr = None if found is None else aws.ecr(found)
            plain_http = found is None and takes_plain_http(each.host, info or {})
            transport = Transport(each.host, login, say=say, plain_http=plain_http)
            clients[each.host] = RepositoryClient(Registry(transport), each.repository, login, ecr)
    return [replace(clients[each.host], name=each.repository) for each in repositories]
