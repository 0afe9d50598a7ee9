"""An open implementation of SageMaker's libraries of this name, of their public interfaces; not AWS's.

dataparallel   the data parallel library (SMDDP), versions 1 and 2
modelparallel  the model parallel library, version 1
ranks          which rank this process is, by the launcher's variables: both read them here
"""

__version__ = "1.0.0+berth"
OPEN = True
"""By which a program sees that this is not AWS's library."""
