"""What ECR or IAM would refuse in a policy, or what would not do what it seems to: a few words for each thing. Pure.

ECR says of a wrong policy only that it is one; here the rule or the statement is named.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# ECR's limits, of its service model and its page of quotas: characters, rules and wildcards.
_LIFECYCLE_LENGTH = range(100, 30_721)
_LIFECYCLE_RULES = 50
_REPOSITORY_POLICY_LENGTH = range(0, 10_241)
_IAM_POLICY_LENGTH = range(0, 6_145)  # of a managed policy, spaces not counted
_WILDCARDS = 4

_COUNT_TYPES = ("imageCountMoreThan", "sinceImagePushed", "sinceImagePulled", "sinceImageTransitioned")
TAG_LISTS = ("tagPatternList", "tagPrefixList")


def text(document: Any) -> str:
    """A policy as it is sent."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def lifecycle_problems(document: Any) -> list[str]:
    """What ECR would refuse in a lifecycle policy, or what would not do what it seems to; a few words each."""
    rules = document.get("rules") if isinstance(document, dict) else None
    if not isinstance(rules, list) or not 1 <= len(rules) <= _LIFECYCLE_RULES or len(document) > 1:
        return [f'it is not {{"rules": [...]}} with 1 to {_LIFECYCLE_RULES} rules']
    found = [f"{_place(rule, at)} {wrong}" for at, rule in enumerate(rules, 1) for wrong in _rule_problems(rule)]
    if found:
        return found

    priorities = [rule["rulePriority"] for rule in rules]
    found += [f"several rules have rulePriority {number}" for number in _repeated(priorities)]
    last = max(priorities)
    if any(rule["selection"]["tagStatus"] == "any" and rule["rulePriority"] != last for rule in rules):
        found.append('a rule with tagStatus "any" must be the only one, with the highest rulePriority')
    seen = [_seen(rule["selection"]) for rule in rules]
    found += [f"several rules select {' '.join(words)}" for words in _repeated(seen)]
    return found + _length_problem(text(document), _LIFECYCLE_LENGTH)


def repository_policy_problems(document: Any) -> list[str]:
    """What ECR would refuse in a repository policy, or what would let everybody in; a few words each."""
    found = _statement_problems(document, "Principal", "Resource")
    return found or _length_problem(text(document), _REPOSITORY_POLICY_LENGTH)


def iam_policy_problems(document: Any) -> list[str]:
    """What IAM would refuse in a user's or role's policy; a few words each."""
    found = _statement_problems(document, "Resource", "Principal")
    return found or _length_problem(re.sub(r"\s", "", text(document)), _IAM_POLICY_LENGTH)


def _rule_problems(rule: Any) -> list[str]:
    """What is wrong with a rule of a lifecycle policy by itself."""
    selection, action = (rule.get(name) if isinstance(rule, dict) else None for name in ("selection", "action"))
    if not isinstance(selection, dict) or not isinstance(action, dict):
        return ["is not {rulePriority, selection, action}"]
    found = [
        *_unknown(rule, ("rulePriority", "description", "selection", "action")),
        *_unknown(selection, ("tagStatus", *TAG_LISTS, "storageClass", "countType", "countUnit", "countNumber")),
        *_unknown(action, ("type", "targetStorageClass")),
    ]
    if not _is_count(rule.get("rulePriority")):
        found.append("has no rulePriority of 1 or more")

    status = selection.get("tagStatus")
    lists = [name for name in TAG_LISTS if name in selection]
    if status not in ("tagged", "untagged", "any"):
        found.append("has no tagStatus: tagged, untagged or any")
    elif status == "tagged" and len(lists) != 1:
        found.append("selects tagged images by neither or both of tagPatternList and tagPrefixList")
    elif status != "tagged" and lists:
        found.append(f"has a {lists[0]}, which is for tagged images only")
    for name in lists:
        words = selection[name]
        if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
            found.append(f"has a {name} that is no list of texts")
        elif name == "tagPrefixList" and any("*" in word for word in words):
            found.append("has a * in its tagPrefixList, which knows none: make it a tagPatternList")
        elif any(word.count("*") > _WILDCARDS for word in words):
            found.append(f"has a pattern with more than {_WILDCARDS} *")

    by_count = selection.get("countType") == "imageCountMoreThan"
    if selection.get("countType") not in _COUNT_TYPES:
        found.append(f"has no countType: {', '.join(_COUNT_TYPES)}")
    elif by_count and "countUnit" in selection:
        found.append("counts images, and has a countUnit")
    elif not by_count and selection.get("countUnit") != "days":
        found.append("counts time, and has no countUnit of days")
    if not _is_count(selection.get("countNumber")):
        found.append("has no countNumber of 1 or more")
    if selection.get("storageClass", "standard") not in ("standard", "archive"):
        found.append("has a storageClass other than standard and archive")
    if (action.get("type"), action.get("targetStorageClass")) not in (("expire", None), ("transition", "archive")):
        found.append("has an action other than expire, and transition to archive")
    return found


def _statement_problems(document: Any, needed: str, refused: str) -> list[str]:
    """What is wrong with the statements of a policy that has `needed` in each, and `refused` in none."""
    statements = document.get("Statement") if isinstance(document, dict) else None
    if not isinstance(statements, list) or not statements:
        return ["it has no Statement: [...]"]
    found = [] if document.get("Version") == "2012-10-17" else ['its Version is not "2012-10-17"']
    for at, statement in enumerate(statements, 1):
        if not isinstance(statement, dict):
            found.append(f"statement {at} is not {{...}}")
            continue
        name = f"statement {statement.get('Sid', at)}"
        known = ("Sid", "Effect", "Action", "Condition", needed)
        found += [f"{name} {wrong}" for wrong in _unknown(statement, (*known, refused))]
        if not re.fullmatch(r"[A-Za-z0-9]+", str(statement.get("Sid", ""))):
            found.append(f"{name} has no Sid of letters and digits")
        if statement.get("Effect") not in ("Allow", "Deny"):
            found.append(f"{name} has no Effect: Allow or Deny")
        actions = statement.get("Action")
        if not isinstance(actions, list) or not actions:
            found.append(f"{name} has no Action: [...]")
        else:
            found += [f"{name} has {one!r}, no action of ECR" for one in actions if not _is_action(one)]
        if not statement.get(needed):
            found.append(f"{name} has no {needed}")
        if refused in statement:
            found.append(f"{name} has a {refused}, which does not belong there")
        if statement.get("Effect") == "Allow" and _is_everybody(statement.get("Principal")):
            found.append(f"{name} lets every AWS account in")
    names = [str(statement["Sid"]) for statement in statements if isinstance(statement, dict) and "Sid" in statement]
    return found + [f"several statements are called {name}" for name in _repeated(names)]


def _is_action(one: Any) -> bool:
    return isinstance(one, str) and bool(re.fullmatch(r"ecr:[A-Z][A-Za-z]+", one))


def _is_everybody(principal: Any) -> bool:
    if isinstance(principal, dict):
        principal = principal.get("AWS")
    return "*" in (principal if isinstance(principal, list) else [principal])


def _is_count(number: Any) -> bool:
    return type(number) is int and number >= 1  # not True, which JSON has as well


def _unknown(found: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    return [f"has an unknown {name!r}" for name in found if name not in known]


def _seen(selection: Mapping[str, Any]) -> tuple[str, ...]:
    """What a rule selects, which no other rule may."""
    words: list[str] = next((selection[name] for name in TAG_LISTS if name in selection), [])
    return (*sorted(words), selection["tagStatus"], "in", selection.get("storageClass", "standard"))


def _place(rule: Any, at: int) -> str:
    priority = rule.get("rulePriority") if isinstance(rule, dict) else None
    return f"rule {priority}" if _is_count(priority) else f"the rule at place {at}"


def _length_problem(sent: str, allowed: range) -> list[str]:
    if len(sent) in allowed:
        return []
    return [f"it is {len(sent)} characters long, of {allowed[0]} to {allowed[-1]} allowed"]


def _repeated(values: Iterable[Any]) -> list[Any]:
    seen = list(values)
    return list(dict.fromkeys(value for value in seen if seen.count(value) > 1))
