"""Compiles what an image's processes load at their start, and nothing else: 8 s less a start, for 25 MB of image.

Measured with torch and transformers: importing them takes 13.2 s of a core without bytecode and 5.6 s with it, in every
rank and every server. Only modules that really are loaded get theirs, checked by hash of the source rather than by its
time, so that two builds of one commit give the same files.

Usage: python -B bytecode.py MODULE...
"""

import importlib
import py_compile
import sys
from pathlib import Path

for name in sys.argv[1:]:
    importlib.import_module(name)

compiled = 0
for module in list(sys.modules.values()):
    # The namespace itself, for some modules of torch answer any attribute with an object of their own.
    source, cached = (vars(module).get(name) for name in ("__file__", "__cached__"))
    if isinstance(source, str) and isinstance(cached, str) and source.endswith(".py") and not Path(cached).exists():
        py_compile.compile(source, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH, quiet=2)
        compiled += 1
print(f"bytecode: {compiled} modules")
