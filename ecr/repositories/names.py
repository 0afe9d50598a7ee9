"""Names in a registry: its host, repositories and tags; what of them is wrong, before anything asks AWS.

Pure. The `…_problems` functions give a sentence for each thing that is wrong, none where all is right, so that a
command can say everything at once, with `refuse`.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from botocore.loaders import create_loader

from berth.ecr.registry.references import lists_referrers

# What ECR's own service model says of `RepositoryName`; Docker's grammar of a path is the same, but for the length.
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_ECR_LENGTH = range(2, 257)
_LENGTH = range(1, 256)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_ACCOUNT = re.compile(r"[0-9]{12}")
# ACCOUNT.dkr.ecr.REGION.SUFFIX; with `-fips` the endpoint whose cryptography is validated by FIPS 140.
_ECR = re.compile(r"(?P<account>[^.]+)\.dkr\.ecr(?P<fips>-fips)?\.(?P<region>[a-z0-9-]+)\.(?P<suffix>[a-z0-9.-]+)")
_PUBLIC = ("public.ecr.aws", "ecr-public.aws.com")


@dataclass(frozen=True, slots=True)
class EcrRegistry:
    """The private registry of an AWS account in a region; there is exactly one each."""

    account: str
    region: str
    fips: bool = False
    """Whether it is spoken to by its FIPS endpoint, which is another host of the same registry."""

    @property
    def partition(self) -> str:
        """The group of regions that the ARNs name: aws, aws-cn, aws-us-gov, …"""
        return _partitions()[self.region][0]

    @property
    def host(self) -> str:
        """What stands before the first slash of an image's URI."""
        return f"{self.account}.dkr.ecr{'-fips' * self.fips}.{self.region}.{_partitions()[self.region][1]}"

    def arn(self, repository: str) -> str:
        """The repository's ARN, as IAM policies and AWS's refusals name it."""
        return f"arn:{self.partition}:ecr:{self.region}:{self.account}:repository/{repository}"


def parse_host(host: str) -> EcrRegistry | None:
    """The registry that a host name is of; None for one that is not ECR's, or not right: `host_problems` says why."""
    match = _ECR.fullmatch(host.lower())
    if match is None or host_problems(host):
        return None
    return EcrRegistry(match["account"], match["region"], bool(match["fips"]))


def account_problems(account: str) -> list[str]:
    """What is wrong with the number of an AWS account."""
    if _ACCOUNT.fullmatch(account):
        return []
    return [f"{account!r} is no AWS account: give its number of 12 digits, leading zeros included."]


def region_problems(region: str) -> list[str]:
    """What is wrong with the name of a region."""
    if region in _partitions():
        return []
    near = _nearest(region, _partitions())
    hint = f"the nearest is {near}: give that" if near else "such as us-east-1: give one"
    return [
        f"{region!r} is no region that this boto3 knows, {hint}, or, if the region is new, take a newer boto3 with "
        "`make lock setup`."
    ]


def host_problems(host: str) -> list[str]:
    """What is wrong with a registry's host as one of AWS's; nothing for a host that is not AWS's."""
    lower = host.lower()
    match = _ECR.fullmatch(lower)
    if match is None:
        return []
    found = account_problems(match["account"]) + region_problems(match["region"])
    if found:
        return found
    right = EcrRegistry(match["account"], match["region"], bool(match["fips"])).host
    return [] if lower == right else [f"{host} is no host of ECR: its registry in {match['region']} is {right}."]


def host_warnings(host: str) -> list[str]:
    """What a user should know of a registry's host before a push there."""
    if host.lower() not in _PUBLIC:
        return []
    return [
        f"{host} is ECR's public gallery. AWS's API reference says that SageMaker pulls from private repositories; "
        "AWS's pages on its Deep Learning Containers give URIs of the gallery. We tried neither."
    ]


def repository_problems(name: str, *, ecr: bool = True) -> list[str]:
    """What is wrong with the name of a repository, without host and tag; ecr: in ECR, else in another registry."""
    if not name:
        return ["the repository name is empty: give one such as berth-train."]
    what = f"the repository name {_short(name)}"
    if re.search("[:@]", name) or _ECR.match(
        name
    ):  # a host alone could be a repository's name, and is never meant as one
        return [f"{what} has a host, a tag or a digest in it: give the name alone, and tags with --tag."]
    who, lengths = ("ECR", _ECR_LENGTH) if ecr else ("a registry", _LENGTH)
    if _REPOSITORY.fullmatch(name) and len(name) in lengths:
        return []
    return [
        f"{what} is not allowed: {who} takes {lengths[0]} to {lengths[-1]} lower-case letters and digits, parted by "
        "single . _ or /, or by -."
    ]


def tag_problems(tag: str) -> list[str]:
    """What is wrong with a tag."""
    if lists_referrers(tag):
        return [
            f"the tag {_short(tag)} is of the kind under which registries list what refers to an image: give another."
        ]
    if _TAG.fullmatch(tag):
        return []
    if not tag:
        return ["a tag is empty: give one such as 1.0, or leave --tag out."]
    return [
        f"the tag {_short(tag)} is not allowed: a registry takes up to 128 letters, digits, _ . and -, and no . or - "
        "at its beginning."
    ]


@cache
def _partitions() -> dict[str, tuple[str, str]]:
    """Every region's partition and DNS suffix, from the data that boto3 itself goes by."""
    found = create_loader().load_data("partitions")["partitions"]
    return {
        region: (partition["id"], partition["outputs"]["dnsSuffix"])
        for partition in found
        for region in partition["regions"]
        if not region.endswith("-global")
    }


def _nearest(word: str, known: Iterable[str]) -> str:
    """The known word that somebody may have meant, empty without one: `us-east1` and `US_EAST_1` are us-east-1."""
    plain = {re.sub(r"[^a-z0-9]", "", name): name for name in known}
    near = difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", word.lower()), plain, n=1)
    return plain[near[0]] if near else ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
