"""Starts this host's ranks and wraps each of them.

session      the event loops of the leader and of a worker
refusal      a host that can't take part reports why
host         what this host does in a job
prepare      fetches the user's program and installs its packages
environment  the environment variables of the host's programs and of each rank
launch       starts the plan's command and forwards its output
rank         the wrapper of one rank: runs its program and reports how it ended
runfolder    the folder that the entry shares with the wrappers
line_buffer  splits a program's output into lines and thins out progress bars
"""
