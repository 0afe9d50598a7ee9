"""What SDK v3's MPI() needs of the image: its driver runs in the place of `train`, and calls mpirun and sshd itself.

driver   whether that driver is who calls, and where the hooks stand before the real programs
mpirun   the driver's mpirun line, with ranks for every host and an interface that is there
sshd     the driver's sshd, which lets in the hosts of the job
keys     the ssh keys of a job: made, exchanged, and laid down
"""
