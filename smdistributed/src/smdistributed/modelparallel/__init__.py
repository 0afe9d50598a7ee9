"""SageMaker's model parallel library, version 1, as its documentation describes it.

parameters  parses and checks the options of a job; pure, without torch
torch       `import smdistributed.modelparallel.torch as smp`
tensorflow  raises ImportError: this library is for PyTorch
"""

__version__ = "1.15.0+berth"
OPEN = True
"""Tells a program that this half is not AWS's; the other half may be."""
