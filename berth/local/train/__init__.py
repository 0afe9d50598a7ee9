"""A training job on this machine.

job_request          the arguments of `run train`, and which program runs
checks               checks of a container, made before one starts
api_limits           limits of SageMaker's API for a job or a model
hyperparameter_list  the hyperparameters of run_qa, for `build.py hyperparameters`
job                  the job on one or many hosts
job_screen           its progress, live in a terminal
job_log              train.log, and the hosts' failure files
host_states          how its hosts ended
artifacts            its archives and checkpoints
own_paths            replaces a container's paths by the user's
"""
