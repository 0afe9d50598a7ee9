"""Checks names of hosts, accounts, regions, repositories and tags, before anything is sent to AWS. Pure.

The `…_problems` functions return a sentence for each problem, so that a command can report all of them with `refuse`.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from botocore.loaders import create_loader

from berth.ecr.registry.references import lists_referrers

# The pattern of `RepositoryName` in ECR's service model; Docker's grammar of a path differs only in the length.
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_ECR_LENGTH = range(2, 257)
_LENGTH = range(1, 256)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_ACCOUNT = re.compile(r"[0-9]{12}")
# ACCOUNT.dkr.ecr.REGION.SUFFIX; `-fips` is the endpoint with cryptography validated by FIPS 140.
_ECR = re.compile(r"(?P<account>[^.]+)\.dkr\.ecr(?P<fips>-fips)?\.(?P<region>[a-z0-9-]+)\.(?P<suffix>[a-z0-9.-]+)")
_PUBLIC = ("public.ecr.aws", "ecr-public.aws.com")


@dataclass(frozen=True, slots=True)
class EcrRegistry:
    """The private registry of an AWS account in a region; each account has exactly one per region."""

    account: str
    region: str
    fips: bool = False
    """Whether to use its FIPS endpoint, another host of the same registry."""

    @property
    def partition(self) -> str:
        """AWS's partition of the region, as in ARNs: aws, aws-cn, aws-us-gov, …"""
        return _partitions()[self.region][0]

    @property
    def host(self) -> str:
        """The part of an image's URI before the first slash."""
        return f"{self.account}.dkr.ecr{'-fips' * self.fips}.{self.region}.{_partitions()[self.region][1]}"

    def arn(self, repository: str) -> str:
        """The repository's ARN, as in IAM policies and AWS's errors."""
        return f"arn:{self.partition}:ecr:{self.region}:{self.account}:repository/{repository}"


def parse_host(host: str) -> EcrRegistry | None:
    """The registry of a host name of ECR; None for another host, or an invalid one (`host_problems` says why)."""
    match = _ECR.fullmatch(host.lower())
    if match is None or host_problems(host):
        return None
    return EcrRegistry(match["account"], match["region"], bool(match["fips"]))


def account_problems(account: str) -> list[str]:
    """Problems of an AWS account's number."""
    if _ACCOUNT.fullmatch(account):
        return []
    return [f"{account!r} is not an AWS account: give its number of 12 digits, leading zeros included."]


def region_problems(region: str) -> list[str]:
    """Problems of a region's name."""
    if region in _partitions():
        return []
    near = _nearest(region, _partitions())
    hint = f"the nearest is {near}: give that" if near else "such as us-east-1: give one"
    return [
        f"{region!r} is not a region that this boto3 knows, {hint}, or, if the region is new, install a newer boto3 "
        "with `make lock setup`."
    ]


def host_problems(host: str) -> list[str]:
    """Problems of a registry's host in ECR; nothing for a host that is not ECR's."""
    lower = host.lower()
    match = _ECR.fullmatch(lower)
    if match is None:
        return []
    found = account_problems(match["account"]) + region_problems(match["region"])
    if found:
        return found
    right = EcrRegistry(match["account"], match["region"], bool(match["fips"])).host
    return [] if lower == right else [f"{host} is not a host of ECR: its registry in {match['region']} is {right}."]


def host_warnings(host: str) -> list[str]:
    """Warnings about a registry's host before a push to it."""
    if host.lower() not in _PUBLIC:
        return []
    return [
        f"{host} is ECR's public gallery. AWS's API reference says that SageMaker pulls from private repositories; "
        "AWS's pages on its Deep Learning Containers give URIs of the gallery. We tried neither."
    ]


def repository_problems(name: str, *, ecr: bool = True) -> list[str]:
    """Problems of a repository's name, without host and tag. ecr: whether it is in ECR or in another registry."""
    if not name:
        return ["the repository name is empty: give one such as berth-train."]
    what = f"the repository name {_short(name)}"
    # A host of ECR would be a valid name, but is never meant as one.
    if re.search("[:@]", name) or _ECR.match(name):
        return [f"{what} contains a host, a tag or a digest: give the name alone, and tags with --tag."]
    who, lengths = ("ECR", _ECR_LENGTH) if ecr else ("a registry", _LENGTH)
    if _REPOSITORY.fullmatch(name) and len(name) in lengths:
        return []
    return [
        f"{what} is not allowed: {who} takes {lengths[0]} to {lengths[-1]} lower-case letters and digits, separated by "
        "single . _ or /, or by -."
    ]


def tag_problems(tag: str) -> list[str]:
    """Problems of a tag."""
    if lists_referrers(tag):
        return [
            f"the tag {_short(tag)} is reserved: registries list an image's attached documents under such tags. Give "
            "another."
        ]
    if _TAG.fullmatch(tag):
        return []
    if not tag:
        return ["a tag is empty: give one such as 1.0, or leave --tag out."]
    return [
        f"the tag {_short(tag)} is not allowed: a tag has up to 128 letters, digits, _ . and -, and does not begin "
        "with . or -."
    ]


@cache
def _partitions() -> dict[str, tuple[str, str]]:
    """Every region's partition and DNS suffix, from boto3's own data."""
    found = create_loader().load_data("partitions")["partitions"]
    return {
        region: (partition["id"], partition["outputs"]["dnsSuffix"])
        for partition in found
        for region in partition["regions"]
        if not region.endswith("-global")
    }


def _nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, empty if none: us-east-1 for `us-east1` and `US_EAST_1`."""
    plain = {re.sub(r"[^a-z0-9]", "", name): name for name in known}
    near = difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", word.lower()), plain, n=1)
    return plain[near[0]] if near else ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
