"""Support for SDK v3's MPI(). Its driver runs instead of `train`, and calls mpirun and sshd itself; both are hooks here
(berth.train.startup.sdk3_driver detects whether the driver is the caller).

mpirun   corrects the driver's mpirun line: ranks for every host, an existing interface
sshd     prepares the driver's sshd, which accepts only the hosts of the job
keys     makes, exchanges and writes the job's ssh keys
"""
