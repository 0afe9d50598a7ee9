"""Starts the ranks of this host, and wraps each of them.

host         this host's part in a job: the leader's or a worker's
prepare      brings the user's program and its packages
environment  the environment of the host's programs and of each rank
launch       starts what the plan says, and passes on its output
rank         the wrapper of one rank: runs its program and reports how it ended
runfolder    the folder in which the entry and its wrappers meet
line_buffer  whole lines of a program's output, progress bars tamed
"""
