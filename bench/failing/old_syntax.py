"""Imports its own module, which was written for Python 2."""

import importlib

with open("losses.py", "w") as module:
    module.write("def focal(logits):\n    loss = logits.mean()\n    print 'loss', loss\n    return loss\n")
losses = importlib.import_module("losses")
