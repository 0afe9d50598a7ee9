"""What SDK v3's MPI() needs of the image: its driver runs in the place of `train`, and calls mpirun and sshd itself
(berth.train.startup.sdk3_driver tells whether it is the caller).

mpirun   the driver's mpirun line, with ranks for every host and an interface that is there
sshd     the driver's sshd, which lets in the hosts of the job
keys     the ssh keys of a job: made, exchanged, and laid down
"""
