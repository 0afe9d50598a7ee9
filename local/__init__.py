"""A SageMaker on your machine, for jobs and endpoints of the kit's images.

opt_ml             what a container finds in /opt/ml, laid out as SageMaker does
checks             what a container would refuse, before there is one
job_request        what run train's command line asks for, and which program that runs
hyperparameter_list what run_qa takes, for people
api_limits         what SageMaker's API would refuse of a job or a model
job                a training job on one or many hosts
endpoint           a served model on a loopback port
demo               the kit's main job, from the embedded sample to an answer
gpu_check          the images' own check of this machine's GPUs
int8               an int8 graph for a model, made and measured in the training image
session            everything that one run starts, gone at its end
cleanup            what a run leaves, also one that was killed, and its removal
chown              files that a container wrote as root, made the caller's
signals            Ctrl-C and SIGTERM as a flag
pip_secrets        this machine's CA, index and wheels, for a job's pip
output_folders     the folders of results: one run at a time writes to each
host_states        how a job's hosts ended
results            what a host left in /opt/ml, without following its links
artifacts          what comes home of a job: its archives and checkpoints
archive            model.tar.gz: packing and unpacking
own_paths          a container's paths as the user called them
paths              what a path on the command line may not be
links              links that would lead nowhere in a container, and copies without them
log_stream         a container's log while it runs
job_log            train.log and the hosts' failure files
job_screen         how far a job is, by the lines of its log, shown live in a terminal
commands           those of build.py
"""
