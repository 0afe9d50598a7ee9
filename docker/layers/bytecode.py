"""Compiles only the modules that processes load at their start: saves 8 s per start, for 25 MB of image.

Importing torch and transformers takes 13.2 s of a core without bytecode and 5.6 s with it, in every rank and server.
Bytecode is checked by the hash of its source, not its time, so that two builds of one commit give the same files.

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
    # vars, because some modules of torch return an object for any attribute.
    source, cached = (vars(module).get(name) for name in ("__file__", "__cached__"))
    if isinstance(source, str) and isinstance(cached, str) and source.endswith(".py") and not Path(cached).exists():
        py_compile.compile(source, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH, quiet=2)
        compiled += 1
print(f"bytecode: {compiled} modules")
