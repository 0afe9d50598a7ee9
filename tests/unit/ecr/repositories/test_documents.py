"""The policies in ecr/policies: completed and compared; errors in the files."""

import copy
import json
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from berth.common.errors import UserError
from berth.ecr.repositories import documents
from berth.ecr.repositories.names import EcrRegistry
from berth.images.pins import pins

REGISTRY = EcrRegistry("111122223333", "eu-west-1")
PULL = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
PUSH = json.loads((documents.POLICIES / "push-iam.json").read_text())


def test_lifecycle_policy_in_words() -> None:
    policy = documents.lifecycle_policy()
    assert documents.summary(policy) == "all of release-*, 50 of build-*, untagged for 30 days"
    assert [rule["rulePriority"] for rule in policy["rules"]] == [1, 2, 3]


def test_pull_policy_for_accounts_and_sagemaker() -> None:
    policy = documents.pull_policy(REGISTRY, ["999988887777", "999988887777"], sagemaker=True)
    assert policy == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "BerthAccountsPull",
                "Effect": "Allow",
                "Principal": {"AWS": ["arn:aws:iam::999988887777:root"]},
                "Action": PULL,
            },
            {
                "Sid": "BerthSageMakerPulls",
                "Effect": "Allow",
                "Principal": {"Service": "sagemaker.amazonaws.com"},
                "Action": PULL,
                "Condition": {"StringEquals": {"aws:SourceAccount": ["111122223333", "999988887777"]}},
            },
        ],
    }


@pytest.mark.parametrize(
    ("accounts", "sagemaker", "statements"),
    [(["999988887777"], False, ["BerthAccountsPull"]), ([], True, ["BerthSageMakerPulls"])],
)
def test_pull_policy_has_only_requested_statements(accounts: list[str], sagemaker: bool, statements: list[str]) -> None:
    policy = documents.pull_policy(EcrRegistry("111122223333", "cn-north-1"), accounts, sagemaker=sagemaker)
    assert [statement["Sid"] for statement in policy["Statement"]] == statements
    assert "arn:aws:" not in json.dumps(policy)


def test_push_policy_has_existing_actions_limited_to_repositories() -> None:
    assert PUSH["Statement"][0] == {
        "Sid": "LogIn",
        "Effect": "Allow",
        "Action": ["ecr:GetAuthorizationToken"],
        "Resource": "*",
    }
    *ecr_statements, signing = PUSH["Statement"]
    for statement in ecr_statements[1:]:
        assert statement["Resource"] == [REGISTRY.arn("berth-train"), REGISTRY.arn("berth-serve")]
    actions = [action.removeprefix("ecr:") for statement in ecr_statements for action in statement["Action"]]
    assert (signing["Sid"], signing["Action"]) == ("ManagedSigning", ["signer:SignPayload"])
    assert set(actions) <= set(botocore.session.get_session().get_service_model("ecr").operation_names)
    assert len(actions) == len(set(actions))


def test_readme_explains_each_action_of_the_push_policy() -> None:
    readme = (pins.ROOT / "ecr" / "README.md").read_text()
    actions = {action for statement in PUSH["Statement"] for action in statement["Action"]}
    assert {action for action in actions if f"| `{action}` |" not in readme} == set()


def test_invalid_accounts_are_reported_together() -> None:
    with pytest.raises(UserError, match=r"'12' is not an AWS account.*\n'x' is not an AWS account"):
        documents.pull_policy(REGISTRY, ["12", "x"])
    with pytest.raises(UserError, match="the pull policy allows nobody: name an account, or SageMaker"):
        documents.pull_policy(REGISTRY)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "can't be read (No such file or directory): restore it with `git checkout`."),
        ('{"rules": [', "is not JSON ("),
        ("[]", 'is not a policy: it is not {"rules": [{rulePriority, selection, action}, ...]}: fix it.'),
        (
            '{"rules": ["${keeep}"]}',
            "has '${keeep}', and the known placeholders are none: fix it.",
        ),
        ('{"rules": [{"rulePriority": 1}]}', 'is not a policy: it is not {"rules": [{rulePriority, selection, action'),
        ("{}", 'is not a policy: it is not {"rules": [{rulePriority, selection, action}, ...]}: fix it.'),
    ],
)
def test_error_names_invalid_policy_file(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "lifecycle.json").write_text(content)
    with pytest.raises(UserError) as refusal:
        documents.lifecycle_policy(folder=tmp_path)
    assert str(refusal.value).startswith(f"{tmp_path / 'lifecycle.json'} {message}")


@pytest.mark.parametrize("content", ["{}", '{"Statement": 1}', '{"Statement": ["x"]}', '{"Statement": {"Sid": "x"}}'])
def test_malformed_pull_policy_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "pull.json").write_text(content)
    with pytest.raises(UserError, match="is not a policy: it is not "):
        documents.pull_policy(REGISTRY, sagemaker=True, folder=tmp_path)


@pytest.mark.parametrize("principals", ["*", ["arn:aws:iam::111122223333:root", "*"]])
def test_public_pull_policy_is_refused(principals: Any, tmp_path: Path) -> None:
    statement = {"Sid": "A", "Effect": "Allow", "Principal": {"AWS": principals}, "Action": PULL}
    (tmp_path / "pull.json").write_text(json.dumps({"Statement": [statement]}))
    with pytest.raises(UserError, match=r"pull\.json: statement A lets every AWS account in: name accounts\."):
        documents.pull_policy(REGISTRY, ["999988887777"], folder=tmp_path)
    (tmp_path / "pull.json").write_text(json.dumps({"Statement": [{**statement, "Effect": "Deny"}]}))
    documents.pull_policy(REGISTRY, ["999988887777"], folder=tmp_path)


def test_iam_variables_are_not_replaced(tmp_path: Path) -> None:
    statement = {
        "Sid": "A",
        "Effect": "Allow",
        "Principal": {"AWS": "${account_roots}"},
        "Action": PULL,
        "Condition": {"StringLike": {"aws:ResourceTag/of": "x-${aws:username}"}},
    }
    (tmp_path / "pull.json").write_text(json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    (filled,) = documents.pull_policy(REGISTRY, ["999988887777"], folder=tmp_path)["Statement"]
    assert filled == {**statement, "Principal": {"AWS": ["arn:aws:iam::999988887777:root"]}}


def test_same_ignores_order_and_single_element_lists() -> None:
    policy = documents.pull_policy(REGISTRY, ["999988887777"], sagemaker=True)
    returned = copy.deepcopy(policy)
    returned["Statement"].reverse()
    returned["Statement"][1]["Principal"]["AWS"] = "arn:aws:iam::999988887777:root"
    returned["Statement"][1]["Action"].reverse()
    assert documents.same(policy, returned)
    returned["Statement"][1]["Effect"] = "Deny"
    assert not documents.same(policy, returned)
    assert not documents.same(policy, None)
    assert documents.summary(None) == "none"


def test_same_lifecycle_compares_effects() -> None:
    policy = documents.lifecycle_policy()
    returned = copy.deepcopy(policy)
    returned["rules"].reverse()
    for rule in returned["rules"]:
        rule["rulePriority"] += 3
        rule["description"] = "other words"
    returned["rules"][0]["selection"]["storageClass"] = "standard"
    assert documents.same_lifecycle(policy, returned)
    returned["rules"][0]["rulePriority"] = 1  # another order of the rules
    assert not documents.same_lifecycle(policy, returned)
    fewer = copy.deepcopy(policy)
    fewer["rules"][1]["selection"]["countNumber"] = 49
    assert not documents.same_lifecycle(policy, fewer)
    assert not documents.same_lifecycle(policy, None)
    assert documents.same_lifecycle(None, None)


def test_merged_keeps_statements_of_others() -> None:
    deny = {"Sid": "no deletion", "Effect": "Deny", "Principal": "*", "Action": "ecr:BatchDeleteImage"}
    unnamed = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::555566667777:root"}, "Action": PULL}
    wanted = documents.pull_policy(REGISTRY, ["999988887777"])
    (ours,) = wanted["Statement"]
    old = {**ours, "Principal": {"AWS": "arn:aws:iam::123412341234:root"}}
    assert documents.merged(None, wanted) == wanted
    assert documents.merged({"Version": "2008-10-17", "Statement": deny}, wanted) == {
        "Version": "2008-10-17",
        "Statement": [deny, ours],
    }
    existing = {"Version": "2012-10-17", "Statement": [old, deny, unnamed]}
    assert documents.merged(existing, wanted)["Statement"] == [deny, unnamed, ours]
