"""What to do about a module that a user's program imports and that is not installed."""

import difflib
import importlib.util
import re
import sys

from berth.runtime.hints.program import ProgramContext, RaisedException

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
    "pkg_resources": "setuptools<81",  # newer ones come without it
    "psycopg2": "psycopg2-binary",  # psycopg2 itself is compiled when it is installed
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "PyYAML",
}
"""Module → its line of requirements.txt, where PyPI's package has another name and scripts often import it."""


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """What to do about `No module named 'lightgbm'`; nothing for a part of what is there, or of the user's own code."""
    match = re.match(r"No module named '([^']+)'", raised.message)
    if match is None or raised.kind != "ModuleNotFoundError" or not any(map(context.is_own, raised.files)):
        return ""
    module = match[1].partition(".")[0]
    code_dir = context.code_dir
    own = {path.stem for path in code_dir.glob("*.py")} | {path.name for path in code_dir.glob("*/") if path.is_dir()}
    if module in own or module in sys.modules or importlib.util.find_spec(module) is not None:
        return ""
    if near := difflib.get_close_matches(module, sorted(own), n=1, cutoff=0.8):
        return f"; did you mean your own {near[0]}?"
    known = _PACKAGES.get(module)
    line = f"the line {known}" if known else f"the package that has it ({module}, if it is named so)"
    return f"; add {line} to requirements.txt next to your program"
