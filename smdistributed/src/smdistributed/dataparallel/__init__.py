"""SageMaker's data parallel library (SMDDP), versions 1 and 2, as its documentation describes it.

launch      `smddprun`, which starts a rank
torch       the library: the collectives of version 1, and the torch.distributed backend of version 2
tensorflow  raises ImportError: this library is for PyTorch
"""

__version__ = "2.5.0+berth"
OPEN = True
"""Tells a program that this half is not AWS's; the other half may be."""
