"""Reads pip's settings on this machine with pip itself. Standard library only, for `make setup`."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache

from berth.common.errors import UserError
from berth.common.http import without_password

# pip's files in order, then its variables; later ones win. Older versions of pip merge them themselves.
_SCRIPT = """
import json, sys
try:
    from pip._internal.configuration import Configuration
    from pip._internal.exceptions import PipError
except ImportError:
    sys.exit(print("null"))
settings = Configuration(isolated=False)
try:
    settings.load()
except PipError as error:
    sys.exit(str(error))
print(json.dumps([value if isinstance(value, dict) else {key: value} for key, value in settings.items()]))
"""


def read_pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of `pip install` by name, such as index-url. Uses the pip of this Python, else of the one on PATH;
    without pip, reads only its variables. UserError if pip can't read its files.
    """
    return dict(_read(frozenset(environ.items())))


@cache
def _read(variables: frozenset[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    environ = dict(variables)
    pythons = (sys.executable, shutil.which("python3", path=environ.get("PATH", "")))
    files = next((answer for python in pythons if python and (answer := _ask_pip(python, environ))), None)
    if files is None:
        names = {name: name[4:].lower().replace("_", "-") for name in environ if name.startswith("PIP_")}
        files = [{f":env:.{names[name]}": environ[name] for name in names}]
    merged = {key: value for settings in files for key, value in settings.items() if value}
    found: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        found |= {key.removeprefix(section): value for key, value in merged.items() if key.startswith(section)}
    return tuple(found.items())


def _ask_pip(python: str, environ: Mapping[str, str]) -> list[dict[str, str]] | None:
    """The settings of each of pip's files in order, then of its variables; None without pip."""
    command = [python, "-I", "-c", _SCRIPT]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environ)
    if result.returncode != 0:
        reason = without_password(" ".join(result.stderr.split()))
        raise UserError(f"pip can't read its settings ({reason}): fix that file; `pip config debug` lists all of them.")
    answer: list[dict[str, str]] | None = json.loads(result.stdout)
    return answer
