"""The policies in ecr/policies, completed and checked, and what is said of wrong ones."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from berth.common.errors import UserError
from berth.ecr import document_checks, documents
from berth.ecr.documents import Document
from berth.ecr.names import EcrRegistry
from berth.images import pins

REGISTRY = EcrRegistry("111122223333", "eu-west-1")
PULL = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
Edit = Callable[[Any], None]


def test_the_lifecycle_policy_keeps_releases_and_the_last_builds_and_expires_what_has_no_tag() -> None:
    policy = documents.lifecycle_policy(keep=5, days=7)
    assert documents.summary(policy) == (
        "all of release-*, 5 of *-dirty, 5 of *-cpu-*, 5 of *-cu130-*, 5 of *-cu124-*, untagged for 7 days"
    )
    assert policy["rules"][2] == {
        "rulePriority": 10,
        "description": "Keep the last builds of the profile cpu",
        "selection": {
            "tagStatus": "tagged",
            "tagPatternList": ["*-cpu-*"],
            "countType": "imageCountMoreThan",
            "countNumber": 5,
        },
        "action": {"type": "expire"},
    }


def test_each_profile_has_a_rule_of_its_own() -> None:
    """With one rule for all, twenty pushes of one profile would expire the last build of another."""
    patterns = [rule["selection"].get("tagPatternList") for rule in documents.lifecycle_policy()["rules"][2:-1]]
    assert patterns == [[f"*-{profile}-*"] for profile in pins.load(pins.ROOT / "docker" / "pins.toml").profiles]


def test_the_pull_policy_names_accounts_and_sagemaker_for_them() -> None:
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
def test_only_what_was_asked_for_is_in_the_pull_policy(
    accounts: list[str], sagemaker: bool, statements: list[str]
) -> None:
    policy = documents.pull_policy(EcrRegistry("111122223333", "cn-north-1"), accounts, sagemaker=sagemaker)
    assert [statement["Sid"] for statement in policy["Statement"]] == statements
    assert "arn:aws:" not in json.dumps(policy)


def test_the_push_policy_names_real_actions_on_the_repositories_alone() -> None:
    registries = [REGISTRY, EcrRegistry("111122223333", "us-gov-west-1")]
    policy = documents.push_iam(registries, ["berth-train", "berth-serve"])
    assert policy["Statement"][0] == {
        "Sid": "LogIn",
        "Effect": "Allow",
        "Action": ["ecr:GetAuthorizationToken"],
        "Resource": "*",
    }
    for statement in policy["Statement"][1:]:
        assert statement["Resource"] == [
            "arn:aws:ecr:eu-west-1:111122223333:repository/berth-train",
            "arn:aws:ecr:eu-west-1:111122223333:repository/berth-serve",
            "arn:aws-us-gov:ecr:us-gov-west-1:111122223333:repository/berth-train",
            "arn:aws-us-gov:ecr:us-gov-west-1:111122223333:repository/berth-serve",
        ]
    actions = [action.removeprefix("ecr:") for statement in policy["Statement"] for action in statement["Action"]]
    assert set(actions) <= set(botocore.session.get_session().get_service_model("ecr").operation_names)
    assert len(actions) == len(set(actions))


def test_the_readme_gives_a_reason_for_each_action_of_the_push_policy() -> None:
    readme = (pins.ROOT / "ecr" / "README.md").read_text()
    policy = documents.push_iam([REGISTRY], ["berth-train"])
    actions = {action for statement in policy["Statement"] for action in statement["Action"]}
    assert {action for action in actions if f"| `{action}` |" not in readme} == set()


def test_numbers_and_names_are_refused_together() -> None:
    with pytest.raises(UserError, match=r"0 builds .* Also, -1 days for untagged images are too few"):
        documents.lifecycle_policy(0, -1)
    with pytest.raises(UserError, match=r"'12' is no AWS account.* Also, 'x' is no AWS account"):
        documents.pull_policy(REGISTRY, ["12", "x"])
    with pytest.raises(UserError, match="a pull policy is for nobody: name an account, or SageMaker"):
        documents.pull_policy(REGISTRY)
    with pytest.raises(UserError, match="the repository name 'B' is 1 long"):
        documents.push_iam([REGISTRY], ["B"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "can't be read (No such file or directory): bring it back with `git checkout`."),
        ('{"rules": [', "is not JSON ("),
        ("[]", "is no policy, for it is not {...}: fix it."),
        ('{"rules": ["${keeep}"]}', 'has \'${keeep}\', and only "${days}", "${keep}" can be filled in: fix it.'),
        (
            '{"rules": [{"rulePriority": 1}]}',
            "would not work: rule 1 is not {rulePriority, selection, action}: fix it.",
        ),
        ("{}", 'would not work: it is not {"rules": [...]} with 1 to 50 rules: fix it.'),
    ],
)
def test_a_file_that_is_wrong_is_named(content: str | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "lifecycle.json").write_text(content)
    with pytest.raises(UserError) as refusal:
        documents.lifecycle_policy(folder=tmp_path)
    assert str(refusal.value).startswith(f"{tmp_path / 'lifecycle.json'} {said}")


@pytest.mark.parametrize("content", ["{}", '{"Statement": 1}', '{"Statement": ["x"]}', '{"Statement": {"Sid": "x"}}'])
def test_a_pull_policy_that_is_none_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "pull.json").write_text(content)
    with pytest.raises(UserError, match="would not work: "):
        documents.pull_policy(REGISTRY, sagemaker=True, folder=tmp_path)


def test_variables_of_iam_stay(tmp_path: Path) -> None:
    statement = {
        "Sid": "A",
        "Effect": "Allow",
        "Action": ["ecr:PutImage"],
        "Resource": "${repositories}",
        "Condition": {"StringLike": {"aws:ResourceTag/of": "x-${aws:username}"}},
    }
    (tmp_path / "push-iam.json").write_text(json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    (filled,) = documents.push_iam([REGISTRY], ["ab"], folder=tmp_path)["Statement"]
    assert filled == {**statement, "Resource": [REGISTRY.arn("ab")]}


def edited(document: Document, edit: Edit) -> Document:
    changed = copy.deepcopy(document)
    edit(changed)
    return changed


def select(**changes: Any) -> Edit:
    """An edit of the first rule's selection; None removes."""

    def edit(document: Any) -> None:
        selection = document["rules"][0]["selection"]
        selection.update(changes)
        for name in [name for name, value in changes.items() if value is None]:
            del selection[name]

    return edit


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda d: d["rules"][1].update(rulePriority=10), ["several rules have rulePriority 10"]),
        (lambda d: d["rules"][1].update(rulePriority=True), ["the rule at place 2 has no rulePriority of 1 or more"]),
        (lambda d: d["rules"][1].update(priority=3), ["rule 20 has an unknown 'priority'"]),
        (lambda d: d["rules"].append("x"), ["the rule at place 5 is not {rulePriority, selection, action}"]),
        (lambda d: d.update(rules=d["rules"] * 13), ['it is not {"rules": [...]} with 1 to 50 rules']),
        (lambda d: d.update(Version="1"), ['it is not {"rules": [...]} with 1 to 50 rules']),
        (lambda d: d["rules"][0].update(action={"type": "delete"}), ["rule 10 has an action other than expire, and "]),
        (lambda d: d["rules"][0].update(action={"type": "transition"}), ["rule 10 has an action other than expire, "]),
        (lambda d: d["rules"][0].update(description="x" * 31_000), ["it is 31", "characters long, of 100 to 30720"]),
        (select(tagPatternList=["*-cu130-*"]), ["several rules select *-cu130-* tagged in standard"]),
        (select(tagPatternList=None), ["rule 10 selects tagged images by neither or both of"]),
        (select(tagPrefixList=["cpu"]), ["rule 10 selects tagged images by neither or both of"]),
        (select(tagPatternList=None, tagPrefixList=["cpu*"]), ["rule 10 has a * in its tagPrefixList"]),
        (select(tagPatternList=["*a*b*c*d*"]), ["rule 10 has a pattern with more than 4 *"]),
        (select(tagPatternList="*-cpu-*"), ["rule 10 has a tagPatternList that is no list of texts"]),
        (select(tagPatternList=[]), ["rule 10 has a tagPatternList that is no list of texts"]),
        (select(tagStatus="untagged"), ["rule 10 has a tagPatternList, which is for tagged images only"]),
        (select(tagStatus="untagged", tagPatternList=None), ["several rules select untagged in standard"]),
        (select(tagStatus="any", tagPatternList=None), ['a rule with tagStatus "any" must be the only one, with the']),
        (select(tagStatus=None), ["rule 10 has no tagStatus"]),
        (select(countType="days"), ["rule 10 has no countType: imageCountMoreThan, sinceImagePushed"]),
        (select(countUnit="days"), ["rule 10 counts images, and has a countUnit"]),
        (select(countType="sinceImagePushed"), ["rule 10 counts time, and has no countUnit of days"]),
        (select(countNumber=0, storageClass="cold"), ["no countNumber of 1 or more", "storageClass other than"]),
        (select(countNumber="5"), ["rule 10 has no countNumber of 1 or more"]),
    ],
)
def test_each_fault_of_a_lifecycle_policy_is_named(edit: Edit, said: list[str]) -> None:
    assert document_checks.lifecycle_problems(documents.lifecycle_policy()) == []
    of_profiles = {"rules": documents.lifecycle_policy()["rules"][2:]}
    found = "; ".join(document_checks.lifecycle_problems(edited(of_profiles, edit)))
    assert [part for part in said if part not in found] == []


def test_what_is_too_short_for_ecr_and_what_is_newer_than_the_kit() -> None:
    tiny = {"rules": [{"rulePriority": 1, "selection": {}, "action": {"type": "expire"}}]}
    tiny["rules"][0]["selection"] = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": 9}
    assert document_checks.lifecycle_problems(tiny) == []  # 117 characters
    archived = edited(documents.lifecycle_policy(), lambda d: d["rules"].append(copy.deepcopy(d["rules"][-1])))
    archived["rules"][-1]["rulePriority"] = 50
    archived["rules"][-1]["selection"] |= {"storageClass": "archive", "countType": "sinceImageTransitioned"}
    assert document_checks.lifecycle_problems(archived) == []
    archived["rules"][-1]["action"] = {"type": "transition", "targetStorageClass": "archive"}
    assert document_checks.lifecycle_problems(archived) == []
    assert documents.summary(archived).endswith(
        "untagged for 30 days, untagged for 30 days (sinceImageTransitioned, in archive, then transition)"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"Principal": "*"}, ["statement BerthSageMakerPulls lets every AWS account in"]),
        ({"Principal": {"AWS": ["*"]}}, ["statement BerthSageMakerPulls lets every AWS account in"]),
        ({"Principal": "*", "Effect": "Deny"}, []),
        ({"Effect": "allow"}, ["statement BerthSageMakerPulls has no Effect: Allow or Deny"]),
        ({"Action": "ecr:*"}, ["statement BerthSageMakerPulls has no Action: [...]"]),
        ({"Action": ["ecr:*"]}, ["statement BerthSageMakerPulls has 'ecr:*', no action of ECR"]),
        ({"Action": ["s3:GetObject"]}, ["statement BerthSageMakerPulls has 's3:GetObject', no action of ECR"]),
        ({"Resource": "*"}, ["statement BerthSageMakerPulls has a Resource, which does not belong there"]),
        ({"Principals": {}}, ["statement BerthSageMakerPulls has an unknown 'Principals'"]),
        ({"Sid": "berth pulls"}, ["statement berth pulls has no Sid of letters and digits"]),
        ({"Principal": []}, ["statement BerthSageMakerPulls has no Principal"]),
    ],
)
def test_each_fault_of_a_repository_policy_is_named(change: dict[str, Any], said: list[str]) -> None:
    policy = documents.pull_policy(REGISTRY, sagemaker=True)
    policy["Statement"][0].update(change)
    assert document_checks.repository_policy_problems(policy) == said


def test_faults_of_whole_policies_are_named() -> None:
    policy = documents.push_iam([REGISTRY], ["ab"])
    assert document_checks.iam_policy_problems({**policy, "Version": "2008-10-17"}) == [
        'its Version is not "2012-10-17"'
    ]
    assert document_checks.iam_policy_problems({**policy, "Statement": policy["Statement"] * 2}) == [
        f"several statements are called {sid}" for sid in ("LogIn", "Repository", "Settings", "Images")
    ]
    assert document_checks.iam_policy_problems("x") == ["it has no Statement: [...]"]
    many = documents.pull_policy(REGISTRY, [f"{number:012}" for number in range(1, 200)])
    many["Statement"][0]["Principal"]["AWS"] *= 2
    assert document_checks.repository_policy_problems(many)[0].endswith("characters long, of 0 to 10240 allowed")


def test_policies_are_compared_by_what_they_say() -> None:
    policy = documents.pull_policy(REGISTRY, ["999988887777"], sagemaker=True)
    given_back = copy.deepcopy(policy)
    given_back["Statement"].reverse()
    given_back["Statement"][1]["Principal"]["AWS"] = "arn:aws:iam::999988887777:root"
    given_back["Statement"][1]["Action"].reverse()
    assert documents.same(policy, given_back)
    given_back["Statement"][1]["Effect"] = "Deny"
    assert not documents.same(policy, given_back)
    assert not documents.same(policy, None)
    assert documents.summary(None) == "none"


def test_lifecycle_policies_are_compared_by_what_they_do() -> None:
    policy = documents.lifecycle_policy()
    given_back = copy.deepcopy(policy)
    given_back["rules"].reverse()
    for rule in given_back["rules"]:
        rule["rulePriority"] += 3
        rule["description"] = "other words"
    given_back["rules"][0]["selection"]["storageClass"] = "standard"
    assert documents.same_lifecycle(policy, given_back)
    given_back["rules"][0]["rulePriority"] = 1  # untagged first: no other order matters less, and yet it is another one
    assert not documents.same_lifecycle(policy, given_back)
    assert not documents.same_lifecycle(policy, documents.lifecycle_policy(keep=21))
    assert not documents.same_lifecycle(policy, None)
    assert documents.same_lifecycle(None, None)


def test_a_repository_policy_of_somebody_else_loses_nothing() -> None:
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
    found = {"Version": "2012-10-17", "Statement": [old, deny, unnamed]}
    assert documents.merged(found, wanted)["Statement"] == [deny, unnamed, ours]
