"""The options of a push: who may pull, and problems found before anything is done."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from berth.ecr.push.options import SAGEMAKER, PushOptions
from berth.ecr.repositories.repository_client import RepositoryClient

HOST = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"


def options(*pullers: str) -> PushOptions:
    return PushOptions(
        ("train",),
        profile="cpu",
        named_image=None,
        regions=("eu-west-1",),
        accounts=(),
        host=None,
        repository=None,
        tags=(),
        pullers=pullers,
        kms_key=None,
        apply=False,
        test=True,
        dry_run=False,
        dist=Path("dist"),
        as_json=False,
    )


def principals(*pullers: str) -> list[Any]:
    """Who the pull policy of the wanted repository lets in."""
    registry: Any = SimpleNamespace(host=HOST)
    client = RepositoryClient(registry, "berth-train", lambda *, renew: None, ecr=object())
    wanted = options(*pullers).wanted_repository(client)
    assert wanted is not None
    return [statement["Principal"] for statement in wanted.pull["Statement"]] if wanted.pull else []


def test_only_named_pullers_are_let_in() -> None:
    account, root = "444455556666", {"AWS": ["arn:aws:iam::444455556666:root"]}
    service = {"Service": "sagemaker.amazonaws.com"}
    assert principals() == []
    assert principals(account) == [root]
    assert principals(SAGEMAKER) == [service]
    assert principals(SAGEMAKER, account) == [root, service]


def test_misspelt_puller_is_a_problem() -> None:
    assert options(SAGEMAKER, "444455556666").problems(["train"], derived=False) == []
    (problem,) = options("sagemaker.amazonaws.com").problems(["train"], derived=False)
    assert "sagemaker.amazonaws.com" in problem
