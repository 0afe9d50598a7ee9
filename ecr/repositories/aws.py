"""A thin layer over boto3: account, region, clients of ECR's API, and logins.

boto3 finds credentials, profiles, roles and endpoints, so `AWS_PROFILE`, `AWS_ENDPOINT_URL_ECR`, `AWS_CA_BUNDLE` and
the like work as usual.
"""

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import boto3
from botocore.config import Config

from berth.common.errors import UserError, refuse
from berth.ecr.repositories import aws_errors
from berth.ecr.repositories.aws_errors import explain_aws_errors
from berth.ecr.repositories.login import EcrLogin
from berth.ecr.repositories.names import EcrRegistry, region_problems

_CONNECT_S = 10


class Aws:
    """One command's access to AWS. Clients and logins are made when first needed, and once.

    Threads may share the clients and logins, but only one thread may call this class. UserError names the missing
    setting.
    """

    def __init__(self) -> None:
        self._clients: dict[EcrRegistry, Any] = {}
        self._logins: dict[tuple[str, bool], EcrLogin] = {}

    @cached_property
    def _session(self) -> boto3.Session:
        return boto3.Session()

    def registries(self, regions: Sequence[str] = (), accounts: Sequence[str] = ()) -> list[EcrRegistry]:
        """The registry of each account in each region. Default: boto3's region and the credentials' account.

        Arguments have been checked by `destination.option_problems`.
        """
        if not regions:
            default = self.region()
            if default is None:
                # Report missing credentials together with the missing region.
                refuse([aws_errors.NO_REGION], [] if self.credentials() else [aws_errors.NO_CREDENTIALS])
            assert default is not None, "refused above"
            regions = [default]
        accounts = accounts or [self.login(regions[0]).account]
        pairs = ((region, account) for region in regions for account in accounts)
        return [EcrRegistry(account, region) for region, account in dict.fromkeys(pairs)]

    def credentials(self) -> str | None:
        """Where boto3 finds credentials, such as `env`, never their values; None if it finds none."""
        with explain_aws_errors("AWS credentials"):
            found = self._session.get_credentials()
        return str(found.method) if found else None

    def region(self) -> str | None:
        """AWS_REGION, which the AWS CLI and Lambda use and boto3 does not, otherwise boto3's region; None if unset."""
        ours, theirs = os.environ.get("AWS_REGION"), os.environ.get("AWS_DEFAULT_REGION")
        if ours and theirs and ours != theirs:
            raise UserError(
                f"AWS_REGION is {ours} and AWS_DEFAULT_REGION is {theirs}: give --region, or unset one of them."
            )
        with explain_aws_errors("ecr:GetAuthorizationToken"):
            region = str(ours or self._session.region_name or "")
        refuse(region_problems(region) if region else [])
        return region or None

    def login(self, region: str, *, fips: bool = False) -> EcrLogin:
        """A login for all registries of a region that these credentials may use."""
        if (region, fips) not in self._logins:
            self._logins[region, fips] = EcrLogin(self._client(region, fips=fips))
        return self._logins[region, fips]

    def ecr(self, registry: EcrRegistry) -> Any:
        """A client of ECR's API for one registry, which may belong to another account: calls pass its `registryId`."""
        if registry not in self._clients:
            self._clients[registry] = self._client(registry.region, fips=registry.fips, account=registry.account)
        return self._clients[registry]

    def _client(self, region: str, *, fips: bool, account: str = "") -> Any:
        """A client with exponential backoff and jitter between attempts (botocore's mode "standard")."""
        config = Config(
            connect_timeout=_CONNECT_S,
            retries={"mode": "standard", "total_max_attempts": aws_errors.ATTEMPTS},
            use_fips_endpoint=fips or None,
        )
        with explain_aws_errors("ecr:GetAuthorizationToken"):
            session = self._session
            try:
                client = session.client("ecr", region_name=region, config=config)
            except ValueError as error:  # botocore raises it for an invalid endpoint
                if "Invalid endpoint" not in str(error):
                    raise
                raise UserError(
                    "AWS_ENDPOINT_URL_ECR, or your profile's endpoint_url, is not an http(s) address: fix it."
                ) from None

        def name_registry(params: dict[str, Any], model: Any, **_: Any) -> dict[str, Any]:
            return {"registryId": account, **params} if "registryId" in model.input_shape.members else params

        if account:
            client.meta.events.register("provide-client-params.ecr", name_registry)
        return client


def find_settings() -> tuple[str | None, str | None, str]:
    """Where boto3 found credentials (never their values), the region, and an error in AWS's settings, empty if none.

    Missing credentials or a missing region are not an error here.
    """
    aws = Aws()
    credentials = region = None
    try:
        credentials = aws.credentials()
        region = aws.region()
    except UserError as error:
        return credentials, region, str(error)
    return credentials, region, ""
