"""How the hosts of a job work together: each worker has one connection to the leader.

It carries keys, heartbeats, the workers' failures and the outcome of the job.

rendezvous    how workers join the leader, within a time limit
messages      the message types and their checks
wire          messages and heartbeats on a connection
lookup        name resolution and connections, in the background
events        what can happen on a host while a job runs
stops         forwards stop signals to the programs and limits their time
ssh           the job's keys, and an sshd for mpirun only
outcome       how the job ended: last log lines, failure file
output_sizes  warns about checkpoints in the model folder
ownership     hands the outputs to the owner of the mounted folders
log           the logger, whose lines begin with `berth: `
"""
