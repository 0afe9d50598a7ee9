"""A user's file that has the name of a package and is imported instead of it."""

import importlib.util
import re

from berth.runtime.hints.program import ProgramContext, RaisedException

_MODULE = re.compile(
    r"cannot import name '\w+' from (?:partially initialized module )?'(?P<imported>\w+)[\w.]*'|"
    r"(?:partially initialized )?module '(?P<looked_in>\w+)[\w.]*' has no attribute|"
    r"No module named '(?P<parent>\w+)\.[\w.]+'"
)


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """Advises to rename the file."""
    match = _MODULE.search(raised.message)
    if match is None or raised.name not in ("ImportError", "ModuleNotFoundError", "AttributeError"):
        return ""
    module = match["imported"] or match["looked_in"] or match["parent"]
    own = next((each for each in (f"{module}.py", f"{module}/") if (context.code_dir / each).exists()), "")
    # find_spec finds the package, because the source folder is not on this process's path.
    hides = own and importlib.util.find_spec(module) is not None
    return f"; your own {own} hides the package {module}: rename it" if hides else ""
