"""Things that a handler needs and an endpoint does not have: variables of jobs, files in other folders, the Hub."""

import re
from pathlib import Path

from berth.runtime.hints.places import NO_HUB, find_below
from berth.runtime.hints.program import ProgramContext, RaisedException

MODEL = Path("/opt/ml/model")
_PATH = re.compile(
    r"(?:No such file or directory|Unable to find|Not a directory):? '([^']+)'|Directory (\S+) not found"
)
_UNWRITABLE = re.compile(r"Permission denied|Read-only file system")
_JOB_VARIABLES = re.compile(r"SM_\w+|(?:LOCAL_|WORLD_)?RANK|(?:LOCAL_)?WORLD_SIZE")


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """Where the value or file is, or where the handler may write."""
    if not context.serving:
        return ""
    if raised.name == "SystemExit":
        return '; a handler must not end its process: put what runs as a script under if __name__ == "__main__"'
    if NO_HUB.search(raised.message.replace("\u2019", "'")):
        return "; this endpoint does not reach the Hub: pack the files into model.tar.gz and load them from model_dir"
    if raised.kind == "KeyError" and raised.files and raised.files[-1].endswith(("<frozen os>", "/os.py")):
        return _variable(raised.message.strip("'\""))
    if _UNWRITABLE.search(raised.message):
        return "; a model's folder may be read-only: write to /tmp"
    if match := _PATH.search(raised.message):
        return _missing(Path(match[1] or match[2]), context)
    return ""


def _variable(name: str) -> str:
    if _JOB_VARIABLES.fullmatch(name):
        return f"; {name} is a variable of training jobs: model_fn gets the model's folder as model_dir"
    return f'; the endpoint has no such variable: give the model env={{"{name}": "…"}} (with build.py run: -e {name}=…)'


def _missing(path: Path, context: ProgramContext) -> str:
    model = context.code_dir.parent if context.code_dir.name == "code" else MODEL
    for folder, variable in ((context.code_dir, "os.path.dirname(__file__)"), (model, "model_dir")):
        if found := find_below(path.name, folder):
            return f'; the model has it: os.path.join({variable}, "{found.relative_to(folder)}")'
    return "; a handler's files are in model_dir and beside its own file (__file__)"
