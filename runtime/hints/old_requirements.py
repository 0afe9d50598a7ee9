"""A package of requirements.txt that lacks a name which another package, or the program, imports from it."""

import importlib.metadata
import re
from pathlib import Path

from berth.contract import variables
from berth.runtime.hints.program import ProgramContext, RaisedException
from berth.runtime.hints.replaced_packages import requirement_lines
from berth.runtime.installed_packages import normalised

_MISSING_NAME = re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'")


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """Which line to change: `peft 0.4.0 (requirements.txt, line 2) has no PeftMixedModel: raise its version`."""
    match = _MISSING_NAME.search(raised.message)
    if match is None:
        return ""
    top = match["module"].partition(".")[0]
    said = context.package_note.text if context.package_note else ""
    for package in importlib.metadata.packages_distributions().get(top, ()):
        if f"{normalised(package)} " in said:  # replaced_packages knows what it conflicts with
            return ""
        if line := _pinned_line(normalised(package), context):
            version = importlib.metadata.version(package)
            return f"; {package} {version} ({line}) has no {match['name']}: raise its version, or remove the pin"
    return ""


def _pinned_line(package: str, context: ProgramContext) -> str:
    """Where the job's requirements file holds back a package; "" if it does not."""
    name = context.environ.get(variables.REQUIREMENTS) or "requirements.txt"
    path = Path(context.code_dir, name)
    if not path.is_file():
        return ""
    number, bounds = requirement_lines(path.read_text("utf-8", "replace")).get(package, (0, ""))
    return f"{name}, line {number}" if bounds.startswith(("==", "<", "~=")) else ""
