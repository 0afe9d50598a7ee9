"""What to do about a module that a user's program imports and that is not installed: the user's own files first, then a
package's line for requirements.txt.
"""

import importlib.util
import re
import sys
from collections.abc import Sequence

from berth.runtime.hints import own_modules
from berth.runtime.hints.program import ProgramContext, RaisedException

FILE = "requirements.txt"

_PACKAGES = {
    "Crypto": "pycryptodome",
    "PIL": "Pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",  # opencv-python itself wants libGL, which no image without a display has
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "jwt": "PyJWT",
    "opencv-python": "opencv-python-headless",
    "pkg_resources": "setuptools<81",  # newer ones come without it
    "psycopg2": "psycopg2-binary",  # psycopg2 itself is compiled when it is installed
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "PyYAML",
}
"""Module, or package that does not work here → its line of requirements.txt, where scripts often import it."""
_MISSING = re.compile(r"No module named '?([\w.]+)'?")
_ERRORS = ("ModuleNotFoundError", "ImportError", "RuntimeError")


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """What to do about `No module named 'lightgbm'`; nothing for a part of a package that is installed."""
    match = _MISSING.search(raised.message)
    if match is None or raised.name not in _ERRORS or not any(map(context.is_own, raised.files)):
        return ""
    module = match[1].partition(".")[0]
    if own_modules.is_own(module, context):
        return ""
    if found := own_modules.hint(module, context):
        return found
    if module in sys.modules or importlib.util.find_spec(module) is not None:
        return ""
    if module in _PACKAGES:
        return add_lines([module])
    before = own_modules.alone(module, context) or ";"
    return f"{before} add the package that has it ({module}, if it is named so) to {FILE} next to your program"


def add_lines(names: Sequence[str]) -> str:
    """The hint to install packages, which may have the names of modules."""
    lines = [_PACKAGES.get(name, name) for name in names]
    which = f"the line {lines[0]}" if len(lines) == 1 else f"the lines {' and '.join(lines)}"
    return f"; add {which} to {FILE} next to your program"
