"""A file of a model that can't be loaded: pickled elsewhere, or not the file itself."""

import re

from berth.runtime.hints.program import ProgramContext, RaisedException

_LOST = re.compile(r"Can't get attribute '(?P<name>\w+)' on <module '(?P<module>[\w.]+)'")
_SCRIPTS = ("__main__", "__mp_main__", "berth.serve.workers.process")
"""Names of the module that runs as a program, as exceptions have them; the last is a worker's."""
_WEIGHTS_ONLY = re.compile(r"Weights only load failed")
_NEW_NUMPY = re.compile(r"No module named 'numpy\._core")
_POINTER = re.compile(r"invalid load key, 'v'|HeaderTooLarge|header too large")


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """What to save or pack instead."""
    del context
    if found := _LOST.search(raised.message):
        name, module = found["name"], found["module"]
        if module not in _SCRIPTS and not module.endswith(".__main__"):
            return f"; {name} was pickled as part of {module}: pack the {module} that has it"
        return (
            f"; {name} was pickled in the script that defines it: move it into a module, import it from there in that "
            "script and here, and save again (for torch save the state_dict)"
        )
    if _WEIGHTS_ONLY.search(raised.message):
        return "; save the state_dict, or, for a file that you trust, load it with torch.load(…, weights_only=False)"
    if _NEW_NUMPY.search(raised.message):
        return "; the file was pickled with NumPy 2: pickle it with this image's NumPy"
    if _POINTER.search(raised.message):
        return "; the file may be a pointer of Git LFS: run git lfs pull before packing it"
    return ""
