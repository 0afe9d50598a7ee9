"""Hosts meet by one connection each: keys, sign of life, failures up, the exit code down.

rendezvous   who meets whom, and until when        wire    messages on a connection
session      the leader's and a worker's part      events  what can happen while a job runs
ssh          the keys of one job, and the sshd that serves mpirun and nothing else
"""
