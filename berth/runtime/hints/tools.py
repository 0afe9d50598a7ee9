"""Commands and system libraries that the image does not have."""

import re

from berth.runtime.hints.program import ProgramContext, RaisedException

_NO_FILE = re.compile(r"\[Errno 2\] No such file or directory: '([\w.+-]+)'")
_NOT_FOUND = re.compile(r"(?:^|: )([\w.+-]+): (?:command )?not found$")
_LIBRARY = re.compile(r"(lib[\w+-]+)\.so[\d.]*: cannot open shared object file")
_IN_PYTHON = {
    "aws": "use boto3, which the image has",
    "nvidia-smi": "use torch.cuda, which has the same information",
    "wget": "use urllib.request",
    "curl": "use urllib.request",
    "unzip": "use shutil.unpack_archive",
    "zip": "use shutil.make_archive",
}
"""Command → a replacement in Python."""


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """The hint for a command that subprocess did not find, or a system library that a package did not find."""
    del context
    if found := _LIBRARY.search(raised.message):
        if found[1] == "libGL":
            return "; the image has no display libraries: replace opencv-python with opencv-python-headless"
        return f"; the image has no {found[1]}: build your own image FROM this one that installs it"
    match = _NO_FILE.search(raised.message)
    called = bool(raised.files) and raised.files[-1].endswith("/subprocess.py")
    return _advice(match[1]) if match and called else ""


def line_hint(line: str, context: ProgramContext) -> str:
    """The hint for a command that a shell did not find."""
    del context
    match = _NOT_FOUND.search(line)
    return _advice(match[1]) if match else ""


def _advice(command: str) -> str:
    other = f", or {_IN_PYTHON[command]}" if command in _IN_PYTHON else ""
    return f"; the image has no {command}: build your own image FROM this one that installs it{other}"
