"""The policies of ecr/policies/: loaded, completed with the user's accounts, and compared with those in ECR.

A value "${name}", alone in its quotes, is replaced by a list. IAM's own variables have a colon in their name, and stay.
Users may edit the files: ECR checks a policy when it is set, and its error is reported with the file.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from berth.common.errors import UserError, refuse
from berth.ecr.repositories.names import EcrRegistry, account_problems
from berth.images.pins import pins

Document = dict[str, Any]
"""A policy, as `json.load` returns it."""

POLICIES = pins.ROOT / "ecr" / "policies"
EVERY = 100_000
"""A rule that keeps so many images keeps all: no repository of berth will have more."""
# The parts of a policy that berth reads; ECR checks the rest.
_RULE = ("rules", {"rulePriority": int, "selection": dict, "action": dict})
_STATEMENT = ("Statement", {"Sid": str, "Principal": dict})
_TAG_LISTS = ("tagPatternList", "tagPrefixList")


def lifecycle_policy(*, folder: Path = POLICIES) -> Document:
    """The lifecycle policy: releases stay; builds beyond a number expire, and untagged images after some days."""
    return _completed(folder / "lifecycle.json", {}, _RULE)


def pull_policy(
    registry: EcrRegistry, accounts: Sequence[str] = (), *, sagemaker: bool = False, folder: Path = POLICIES
) -> Document:
    """The repository policy that lets other accounts pull, or SageMaker itself on behalf of them and of this one."""
    refuse(
        *(account_problems(account) for account in accounts),
        [] if accounts or sagemaker else ["the pull policy allows nobody: name an account, or SageMaker."],
    )
    document = _completed(
        folder / "pull.json",
        {
            "account_roots": [f"arn:{registry.partition}:iam::{account}:root" for account in _each_once(accounts)],
            "source_accounts": _each_once([registry.account, *accounts]),
        },
        _STATEMENT,
    )
    unwanted = {name for name, requested in {"AWS": accounts, "Service": sagemaker}.items() if not requested}
    wanted = [statement for statement in _statements(document) if not unwanted & set(statement["Principal"])]
    public = [each for each in wanted if each.get("Effect") == "Allow" and "*" in str(each["Principal"].get("AWS", ""))]
    refuse(  # ECR would accept such a statement
        f"{folder / 'pull.json'}: statement {each['Sid']} lets every AWS account in: name accounts." for each in public
    )
    return {**document, "Statement": wanted}


def as_text(document: Document | None) -> str:
    """A policy as sent to AWS."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def same(one: Document | None, other: Document | None) -> bool:
    """Whether two IAM policies are equivalent: AWS returns lists in another order, and a list of one as its element."""
    return bool(_plain(one) == _plain(other))


def same_lifecycle(one: Document | None, other: Document | None) -> bool:
    """Whether two lifecycle policies have the same effect: descriptions don't count, of priorities only the order."""
    if one is None or other is None:
        return one is other
    return [_effect(rule) for rule in _in_order(one)] == [_effect(rule) for rule in _in_order(other)]


def merged(current: Document | None, wanted: Document) -> Document:
    """A repository policy with the wanted statements: those of the same Sid are replaced, all others are kept.

    So no rule of somebody else is lost, least of all a Deny.
    """
    if current is None:
        return wanted
    ours = {statement["Sid"] for statement in _statements(wanted)}
    kept = [statement for statement in _statements(current) if statement.get("Sid") not in ours]
    return {**current, "Statement": [*kept, *_statements(wanted)]}


def pullers(document: Document | None) -> str:
    """Who may pull by berth's own statements in a repository policy, such as "arn:aws:iam::111122223333:root"."""
    found = [
        principal
        for statement in _statements(document or {})
        if str(statement.get("Sid", "")).startswith("Berth")
        for principal in _principals(statement)
    ]
    return ", ".join(found) or "nobody"


def summary(document: Document | None) -> str:
    """A lifecycle policy in one line, such as "50 of build-*, untagged for 30 days"."""
    if document is None:
        return "none"
    return ", ".join(_rule_in_words(rule) for rule in _in_order(document)) or "no rules"


def _completed(path: Path, values: Mapping[str, Any], parts: tuple[str, Mapping[str, type]]) -> Document:
    """A file's policy with each "${name}" replaced; parts: the key of its list, and its entries' required keys."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}): restore it with `git checkout`.") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): fix it.") from None

    def complete(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: complete(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [complete(inner) for inner in value]
        if not isinstance(value, str):
            return value
        for name in re.findall(r"\$\{([^:}]*)\}", value):
            if value != f"${{{name}}}" or name not in values:
                known = ", ".join(f'"${{{each}}}"' for each in sorted(values)) or "none"
                raise UserError(f"{path} has {value!r}, and the known placeholders are {known}: fix it.")
            return values[name]
        return value

    completed = complete(document)
    listed, shape = parts
    entries = completed.get(listed) if isinstance(completed, dict) else None
    if not isinstance(entries, list) or not all(_has_shape(entry, shape) for entry in entries):
        raise UserError(f'{path} is not a policy: it is not {{"{listed}": [{{{", ".join(shape)}}}, ...]}}: fix it.')
    return dict(completed)


def _has_shape(entry: Any, shape: Mapping[str, type]) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(name), kind) for name, kind in shape.items())


def _statements(document: Document) -> list[dict[str, Any]]:
    """The statements of an IAM policy, which may have a single one without a list."""
    found = document.get("Statement", [])
    return [statement for statement in (found if isinstance(found, list) else [found]) if isinstance(statement, dict)]


def _principals(statement: Mapping[str, Any]) -> list[str]:
    """The principals of a statement, with the accounts to which a condition limits them."""
    principal = statement.get("Principal", {})
    each = principal.values() if isinstance(principal, dict) else [principal]
    names = [name for value in each for name in (value if isinstance(value, list) else [value])]
    limit = statement.get("Condition", {}).get("StringEquals", {}).get("aws:SourceAccount", [])
    accounts = ", ".join(sorted(limit if isinstance(limit, list) else [limit]))
    return [f"{name} for {accounts}" if accounts else str(name) for name in sorted(names)]


def _in_order(lifecycle: Document) -> list[dict[str, Any]]:
    return sorted(lifecycle.get("rules", []), key=lambda rule: int(rule.get("rulePriority", 0)))


def _effect(rule: Mapping[str, Any]) -> Any:
    selection = {"storageClass": "standard", **rule.get("selection", {})}
    return _plain({"selection": selection, "action": rule.get("action")})


def _rule_in_words(rule: Mapping[str, Any]) -> str:
    selection, action = rule.get("selection", {}), rule.get("action", {})
    words: list[str] = next((selection[name] for name in _TAG_LISTS if name in selection), [])
    star = "*" if "tagPrefixList" in selection else ""
    what = " and ".join(f"{word}{star}" for word in words) or selection.get("tagStatus", "?")
    number, kind = selection.get("countNumber", "?"), selection.get("countType", "?")
    count = "all" if type(number) is int and number >= EVERY else number
    kept = f"{count} of {what}" if kind == "imageCountMoreThan" else f"{what} for {number} days"
    odd = [
        *([] if kind in ("imageCountMoreThan", "sinceImagePushed") else [kind]),
        *([f"in {selection['storageClass']}"] if selection.get("storageClass", "standard") != "standard" else []),
        *([f"then {action.get('type')}"] if action.get("type") != "expire" else []),
    ]
    return f"{kept} ({', '.join(odd)})" if odd else kept


def _each_once(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _plain(value: Any) -> Any:
    """A policy in one form: lists sorted, a list of one as its element."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        plain = sorted((_plain(inner) for inner in value), key=lambda inner: json.dumps(inner, sort_keys=True))
        return plain[0] if len(plain) == 1 else plain
    return value
