"""SageMaker's data parallel library (SMDDP), versions 1 and 2, as its documentation describes it.

launch      `smddprun`, which starts a rank
torch       the library: version 1's own collectives, and version 2's backend of torch.distributed
tensorflow  refused with a sentence: this is for PyTorch
"""

__version__ = "2.5.0+berth"
OPEN = True
"""By which a program sees that this is not AWS's library, also where AWS's other half stands beside it."""
