"""An open implementation of SageMaker's libraries of this name, of their public interfaces; not AWS's.

modelparallel  the model parallel library, version 1
"""

__version__ = "1.0.0+berth"
OPEN = True
"""By which a program sees that this is not AWS's library."""
