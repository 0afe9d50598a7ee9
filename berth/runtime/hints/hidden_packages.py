"""A file of the user's that has the name of a package, and is imported in its place."""

import importlib.util
import re

from berth.runtime.hints.program import ProgramContext, RaisedException

_MODULE = re.compile(
    r"cannot import name '\w+' from (?:partially initialized module )?'(?P<imported>\w+)[\w.]*'|"
    r"(?:partially initialized )?module '(?P<looked_in>\w+)[\w.]*' has no attribute|"
    r"No module named '(?P<parent>\w+)\.[\w.]+'"
)


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """To rename that file."""
    match = _MODULE.search(raised.message)
    if match is None or raised.name not in ("ImportError", "ModuleNotFoundError", "AttributeError"):
        return ""
    module = match["imported"] or match["looked_in"] or match["parent"]
    own = next((each for each in (f"{module}.py", f"{module}/") if (context.code_dir / each).exists()), "")
    # This process does not have the source folder on its path.
    hides = own and importlib.util.find_spec(module) is not None
    return f"; your own {own} hides the package {module}: rename it" if hides else ""
