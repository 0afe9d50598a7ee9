"""Hints for a missing module: searches the user's own files first, else suggests a line for requirements.txt."""

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
    "cv2": "opencv-python-headless",  # opencv-python itself needs libGL, which the image does not have
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "jwt": "PyJWT",
    "opencv-python": "opencv-python-headless",
    "pkg_resources": "setuptools<81",  # newer versions do not contain it
    "psycopg2": "psycopg2-binary",  # psycopg2 itself must be compiled
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "PyYAML",
}
"""Module, or package that does not work here → line for requirements.txt; for frequent imports."""
_MISSING = re.compile(r"No module named '?([\w.]+)'?")
_ERRORS = ("ModuleNotFoundError", "ImportError", "RuntimeError")


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """The hint for `No module named 'lightgbm'`; "" for a submodule of an installed package."""
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
    before = own_modules.single_file(module, context) or ";"
    return (
        f"{before} add the package that contains it ({module}, if it has the same name) to {FILE} next to your program"
    )


def add_lines(names: Sequence[str]) -> str:
    """The hint to install packages, given by their names or by those of modules."""
    lines = [_PACKAGES.get(name, name) for name in names]
    which = f"the line {lines[0]}" if len(lines) == 1 else f"the lines {' and '.join(lines)}"
    return f"; add {which} to {FILE} next to your program"
