"""Modules of the programs that run, kill and restart jobs; tests of the training image use `containers` as well.

small              a model with random weights, some questions, and hyperparameters for tens of steps
containers         the hosts of a job as containers of the training image on a temporary network
processes          the ranks of a job as processes of this machine, without entry and containers
killing            choose from a seed which process is killed when and by which signal, and kill it
saved_checkpoints  the checkpoints in a folder, complete or incomplete, and what S3 restores
restarting         kill and restart a job until it ends, with S3 between its starts
fault_table        the faults of jobs on several hosts, the expected reasons, and the table of results
run_qa             run_qa as one process of this machine, for large_checkpoint and large_data
verdict            judge each start and each job, and render the page of results
"""
