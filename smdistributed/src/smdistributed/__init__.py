"""An open implementation of the public interfaces of SageMaker's `smdistributed` libraries; not AWS's code.

dataparallel   the data parallel library (SMDDP), versions 1 and 2
modelparallel  the model parallel library, version 1
ranks          reads this process's rank from the launcher's variables, for both libraries
gloo_threads   waits for gloo's threads before Python ends
"""

__version__ = "1.0.0+berth"
OPEN = True
"""Tells a program that this is not AWS's library."""
