"""Hosts meet by one connection each: keys, sign of life, failures up, the exit code down.

rendezvous   who meets whom, and until when         messages  what hosts may say, and nothing else
wire         messages on a connection               events    what can happen while a job runs
lookup       names to addresses, in the background
session      the loops that decide: a leader's, a worker's
stops        a job that is told to stop: its programs' time, and its end
ssh          a job's keys, and the sshd that serves mpirun alone
outcome      how the job ended and what it leaves: output_sizes measures it, ownership hands it over
log          whole lines that begin with `berth: `
"""
