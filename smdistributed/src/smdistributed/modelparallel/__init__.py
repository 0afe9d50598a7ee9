"""SageMaker's model parallel library, version 1, as its documentation describes it.

parameters  the options of a job, read and checked; pure, without torch
torch       `import smdistributed.modelparallel.torch as smp`
tensorflow  refused with a sentence: this is for PyTorch
"""

__version__ = "1.15.0+berth"
OPEN = True
"""By which a program sees that this is not AWS's library, also where AWS's other half stands beside it."""
