"""Valid and invalid hosts, accounts, regions, repositories and tags."""

from collections.abc import Callable

import pytest

from berth.ecr.repositories import names
from berth.ecr.repositories.names import EcrRegistry

ACCOUNT = "111122223333"
RULE = "ECR takes 2 to 256 lower-case letters and digits, separated by single . _ or /, or by -."


@pytest.mark.parametrize(
    ("region", "partition", "host"),
    [
        ("us-east-1", "aws", "111122223333.dkr.ecr.us-east-1.amazonaws.com"),
        ("cn-north-1", "aws-cn", "111122223333.dkr.ecr.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "aws-us-gov", "111122223333.dkr.ecr.us-gov-west-1.amazonaws.com"),
        ("us-isob-east-1", "aws-iso-b", "111122223333.dkr.ecr.us-isob-east-1.sc2s.sgov.gov"),
        ("eusc-de-east-1", "aws-eusc", "111122223333.dkr.ecr.eusc-de-east-1.amazonaws.eu"),
    ],
)
def test_hosts_and_arns_of_each_partition(region: str, partition: str, host: str) -> None:
    registry = EcrRegistry(ACCOUNT, region)
    assert registry.host == host
    assert registry.arn("team/berth-train") == f"arn:{partition}:ecr:{region}:{ACCOUNT}:repository/team/berth-train"
    assert names.parse_host(host) == registry


def test_parse_host_keeps_fips_and_ignores_case() -> None:
    registry = names.parse_host("111122223333.dkr.ecr-fips.us-gov-west-1.amazonaws.com")
    assert registry == EcrRegistry(ACCOUNT, "us-gov-west-1", fips=True)
    assert registry.host == "111122223333.dkr.ecr-fips.us-gov-west-1.amazonaws.com"
    assert names.parse_host(registry.host.upper()) == registry


@pytest.mark.parametrize("host", ["localhost:5000", "127.0.0.1:5000", "registry.example.com", "ghcr.io", ""])
def test_other_registries_are_not_ecr_and_have_no_problems(host: str) -> None:
    assert names.parse_host(host) is None
    assert names.host_problems(host) == []


@pytest.mark.parametrize("host", ["public.ecr.aws", "PUBLIC.ECR.AWS", "ecr-public.aws.com"])
def test_warning_for_public_gallery(host: str) -> None:
    assert names.host_problems(host) == []
    (warning,) = names.host_warnings(host)
    assert f"{host} is ECR's public gallery" in warning
    assert names.host_warnings("127.0.0.1:5000") == []


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        (
            "111122223333.dkr.ecr.cn-north-1.amazonaws.com",
            "111122223333.dkr.ecr.cn-north-1.amazonaws.com is not a host of ECR: its registry in cn-north-1 is "
            "111122223333.dkr.ecr.cn-north-1.amazonaws.com.cn.",
        ),
        (
            "111122223333.dkr.ecr.us-east-1.evil.example",
            "111122223333.dkr.ecr.us-east-1.evil.example is not a host of ECR: its registry in us-east-1 is "
            "111122223333.dkr.ecr.us-east-1.amazonaws.com.",
        ),
        (
            "123.dkr.ecr.us-east-1.amazonaws.com",
            "'123' is not an AWS account: give its number of 12 digits, leading zeros included.",
        ),
    ],
)
def test_hosts_similar_to_ecr_are_refused(host: str, problem: str) -> None:
    assert names.parse_host(host) is None
    assert names.host_problems(host) == [problem]


@pytest.mark.parametrize(
    ("check", "valid"),
    [
        (names.account_problems, ["111122223333", "000000000001"]),
        (names.region_problems, ["us-east-1", "cn-northwest-1", "us-gov-east-1"]),
        (names.repository_problems, ["ab", "berth-train", "team/berth_train", "a.b/c-d/e__f", "a--b", "1a", "x" * 256]),
        (names.tag_problems, ["build-0.1.0-cpu-1a2b3c4d5e6f", "cpu", "_x", "V1.0_rc-2", "x" * 128]),
    ],
)
def test_valid_names_have_no_problems(check: Callable[[str], list[str]], valid: list[str]) -> None:
    assert [check(name) for name in valid] == [[]] * len(valid)


@pytest.mark.parametrize(
    ("check", "invalid", "part"),
    [
        (names.account_problems, "1111-2222-3333", "'1111-2222-3333' is not an AWS account: give its number of 12 dig"),
        (names.account_problems, "111122223333\n", "is not an AWS account"),
        (names.account_problems, "\uff11" * 12, "is not an AWS account"),
        (names.account_problems, "", "'' is not an AWS account"),
        (
            names.region_problems,
            "us-east1",
            "the nearest is us-east-1: give that, or, if the region is new, install a newer boto3",
        ),
        (names.region_problems, "EU_CENTRAL_1", "the nearest is eu-central-1: give that"),
        (names.region_problems, "aws-global", "'aws-global' is not a region that this boto3 knows"),
        (names.region_problems, "", "such as us-east-1: give one"),
        (names.repository_problems, "", "the repository name is empty: give one such as berth-train."),
        *((names.repository_problems, name, RULE) for name in ("a", "x" * 257, "Berth", "a//b", "b-", "b\n", "--")),
        (names.repository_problems, "berth-train:cpu", "contains a host, a tag or a digest"),
        (
            names.repository_problems,
            "111122223333.dkr.ecr.us-east-1.amazonaws.com/berth",
            "contains a host, a tag or a digest",
        ),
        (names.tag_problems, "", "a tag is empty: give one such as 1.0, or leave --tag out."),
        *(
            (names.tag_problems, tag, "is not allowed: a tag has up to 128 letters")
            for tag in ("x" * 129, "1.0+cu130", "-x", "prod\n", "bad tag", "née")
        ),
        (
            names.tag_problems,
            "sha256-1",
            "the tag 'sha256-1' is reserved: registries list an image's attached documents",
        ),
    ],
)
def test_invalid_names_have_one_problem(check: Callable[[str], list[str]], invalid: str, part: str) -> None:
    (sentence,) = check(invalid)
    assert part in sentence
    assert sentence.endswith(".")


def test_repository_length_in_other_registries() -> None:
    assert names.repository_problems("z", ecr=False) == []
    (problem,) = names.repository_problems("x" * 256, ecr=False)
    assert f"'{'x' * 57}...' is not allowed: a registry takes 1 to 255" in problem
