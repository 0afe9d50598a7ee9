"""A training job on this machine.

job_request          what `run train` was asked for, and which program runs
checks               refuses what a container would refuse, before one starts
api_limits           refuses what SageMaker's API would refuse of a job or a model
hyperparameter_list  the hyperparameters of run_qa, for people
job                  the job on one or many hosts
job_screen           its progress, live in a terminal
job_log              train.log, and the hosts' failure files
host_states          how its hosts ended
artifacts            its archives and checkpoints
own_paths            a container's paths as the user called them
"""
