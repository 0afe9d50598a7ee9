"""What bench/kills.py and bench/faults.py are made of; the tests of the training image use the containers as well.

small        a model with random weights, some questions, and the job of some tens of steps on them
containers   hosts of a job, each a container of the training image on a network of their own
processes    the ranks of a job as processes of this machine, without entry and containers
killing      which process of a job is killed, when and by which signal: chosen by a seed, then done
kept         what a checkpoint folder holds, whole or torn, and what S3 brings back of it
restarting   a job that is killed and started again until it ends, with S3 between its starts
fault_table  the faults that befall jobs of several hosts, and the table of what the hosts said
run_qa       run_qa as one process of this machine, for large_checkpoint and large_data
verdict      what a start of a job and a whole job must show, and the page that says it
"""
