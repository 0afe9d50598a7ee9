"""Starts this host's ranks and wraps each of them.

host         this host's part in a job: the leader's or a worker's
prepare      fetches the user's program and installs its packages
environment  the environment variables of the host's programs and of each rank
launch       starts the plan's command and forwards its output
rank         the wrapper of one rank: runs its program and reports how it ended
runfolder    the folder that the entry shares with the wrappers
line_buffer  splits a program's output into lines and thins out progress bars
"""
