"""What uv says where it finds no solution, as one sentence. Pure.

uv proves it, in steps: "Because A depends on P>=2 and B depends on P<2, we can conclude that …". What it begins with is
facts of the index and what was asked for, by a project called `lock` (images/locks.py); of these the sentence names the
two that collide.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from berth.common.http import without_password
from berth.images.combinations import can_both_be

_ASKER = "lock"
_CHOOSE = "choose another version of one of them"


@dataclass(frozen=True, slots=True)
class _Fact:
    """Somebody asks for versions of a project; `who` is empty for what was asked for itself."""

    who: str
    project: str
    specifier: str

    def says(self) -> str:
        if not self.who:
            return f"{self.project}{self.specifier} is asked for"
        return f"{self.who} wants {self.project} {self.specifier}".rstrip()


def explained(uv_says: str) -> str:
    """uv's "No solution found" as one sentence that names the two that collide; what uv says in short where it is
    another text. Without its last full stop.
    """
    lines = [line.strip().removeprefix("╰─▶").strip() for line in uv_says.strip().splitlines()]
    text = " ".join(line for line in lines if line)
    proof, _, hint = text.partition("hint:")
    if "No solution found" not in proof:
        if unanswered := re.search(r"Failed to fetch:?\s+`?([^\s`]+)", proof):
            reason = lines[-1].removeprefix("cause:").removeprefix("Caused by:").strip(" .")
            return (
                f"the index did not answer at {without_password(unanswered[1])} ({reason}): see whether this machine "
                "reaches it, and run the command again when it does"
            )
        said = [line for line in lines if line and not line.startswith("hint:")]
        return (said[-1] if said else "uv printed nothing").removeprefix("error:").removeprefix("cause:").strip(" .")
    facts = list(_facts(proof))
    return _missing(proof, hint, facts) or _collision(facts) or _in_short(proof)


def _missing(proof: str, hint: str, facts: list[_Fact]) -> str:
    """Of what there is nothing to install, and who wants it."""
    if found := re.search(r"([\w.-]+) was not found in the package registry", proof):
        return f"the package index has no package {found[1]}{_wanted_by(found[1], facts)}: look at how it is spelt"
    if without := _without_wheel(proof, hint, facts):
        return without
    if late := _too_late(hint, facts):
        return late
    if found := re.search(r"there (?:is|are) no versions? of ([\w.-]+?)((?:[=<>!~]=?)\S*)", proof):
        specifier = found[2].rstrip(".,")
        return (
            f"there is no version of {found[1]}{specifier}{_wanted_by(found[1], facts)}: choose one that was released"
        )
    return ""


def _without_wheel(proof: str, hint: str, facts: list[_Fact]) -> str:
    """What has no wheel for the images' Python, and who wants it."""
    found = re.search(
        r"(?:all versions of ([\w.-]+) have|([\w.-]+?)((?:[<>!~=]=?)\S+) has) no (?:usable )?wheels", proof
    )
    if not found:
        return ""
    project = found[1] or found[2]
    version = "in any version" if found[1] else found[3].removeprefix("==")
    tags = re.search(r"tags?: (.*`)", hint)
    there = f" (there are {tags[1].replace('`', '')})" if tags else ""
    askers = [_named(fact, facts).who for fact in facts if fact.project == project and fact.who]
    what = f"{project} {version} has no wheel for this Python{there}, and images install wheels alone"
    return f"{what}; {askers[0]} wants it: {_CHOOSE}" if askers else f"{what}: choose another version, or do without it"


def _too_late(hint: str, facts: list[_Fact]) -> str:
    """What was uploaded after the day as of which all is resolved, and the day of the newest that would do."""
    newer = re.search(r"`([\w.-]+)` was filtered by `exclude-newer`.*? v(\S+?),? (?:was )?published at (\S+?)T", hint)
    if not newer:
        return ""
    name, version, day = newer[1], newer[2], newer[3]
    wanted = next((fact for fact in facts if fact.project == name), _Fact("", name, f"=={version}"))
    return (
        f"{_named(wanted, facts).says()}, and {name} {version} was uploaded on {day}, after the day as of which all is "
        f"resolved: choose {day} or a later day, or an older version"
    )


def _collision(facts: list[_Fact]) -> str:
    for place, one in enumerate(facts):
        for other in facts[place + 1 :]:
            if one.project == other.project and not can_both_be([one.specifier, other.specifier]):
                return f"{_named(one, facts).says()}, and {_named(other, facts).says()}: {_CHOOSE}"
    return ""


def _named(fact: _Fact, facts: list[_Fact]) -> _Fact:
    """With the version that was asked for where uv names a range of it, such as datasets>=5.2.0 for datasets 5.2.0."""
    pins = {
        each.project: each.specifier.removeprefix("==") for each in facts if not each.who and "==" in each.specifier
    }
    found = re.match(r"([\w.-]+?)(?:\[.*?\])?([=<>!~].*)?$", fact.who)
    if not found or not fact.who:
        return fact
    version = pins.get(found[1], "") or (found[2] or "").removeprefix("==")
    return _Fact(f"{found[1]} {version}".strip(), fact.project, fact.specifier)


def _wanted_by(project: str, facts: list[_Fact]) -> str:
    who = next((fact.who for fact in facts if fact.project == project and fact.who), "")
    return f", which {who.replace('==', ' ')} wants" if who else ""


def _facts(proof: str) -> Iterator[_Fact]:
    """What the proof begins with, without what it concludes."""
    for premise in re.findall(r"(?:Because|because) (.*?)(?:,? we can conclude|$)", proof):
        who, named = "", set[str]()
        for part in re.split(r",? and (?=\w)", re.sub(r"\{.*?\}", "", premise)):
            asker, depends, wanted = part.rpartition(" depends on ")
            if depends:
                who, named = "" if asker.strip() == _ASKER else asker.strip(), set()
            try:
                requirement = Requirement(wanted.strip(" .,"))
                SpecifierSet(str(requirement.specifier))
            except (InvalidRequirement, InvalidSpecifier):
                continue
            # Twice in one breath: the second is a constraint, which uv names without its author.
            yield _Fact("" if requirement.name in named else who, requirement.name, str(requirement.specifier))
            named.add(requirement.name)


def _in_short(proof: str) -> str:
    """The first step of the proof, as it stands."""
    steps = re.findall(r"[Bb]ecause (.*?), we can conclude that (.*?)(?=\s+And because|$)", proof)
    return f"{steps[0][0]}: {steps[0][1].rstrip('.')}" if steps else proof.strip(" .")
