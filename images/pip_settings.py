"""pip's settings on this machine, as pip itself reads them. Standard library only, for `make setup`."""

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache

# Its files in their order, then its variables, of which later ones count. Older versions of pip merge them themselves.
_ASK = """
import json, sys
try:
    from pip._internal.configuration import Configuration
    from pip._internal.exceptions import PipError
except ModuleNotFoundError:
    sys.exit(print("null"))
settings = Configuration(isolated=False)
try:
    settings.load()
except PipError as error:
    sys.exit(str(error))
print(json.dumps([value if isinstance(value, dict) else {key: value} for key, value in settings.items()]))
"""


class PipRefusal(Exception):
    """pip can't read its settings; the text is pip's own."""


def read_pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of `pip install` by their names, such as index-url; without pip only those of its variables."""
    return dict(_ask_pip(frozenset(environ.items())))


@cache
def _ask_pip(variables: frozenset[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    command = [sys.executable, "-I", "-c", _ASK]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=dict(variables))
    if done.returncode != 0:
        raise PipRefusal(" ".join(done.stderr.split()))
    files = json.loads(done.stdout)
    if files is None:
        names = {name: name[4:].lower().replace("_", "-") for name, _ in variables if name.startswith("PIP_")}
        files = [{f":env:.{names[name]}": value for name, value in variables if name in names}]
    merged = {key: value for settings in files for key, value in settings.items() if value}
    found: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        found |= {key.removeprefix(section): value for key, value in merged.items() if key.startswith(section)}
    return tuple(found.items())
