"""A SageMaker on your machine, for jobs and endpoints of the kit's images.

opt_ml             what a container finds in /opt/ml, laid out as SageMaker does
demo               the kit's main job, from the embedded sample to an answer
gpu_check          the images' own check of this machine's GPUs
session            everything that one run starts, gone at its end
cleanup            what a run leaves, also one that was killed, and its removal
chown              files that a container wrote as root, made the caller's
signals            Ctrl-C and SIGTERM as a flag
pip_secrets        this machine's CA, index and wheels, for a job's pip
output_folders     the folders of results: one run at a time writes to each
results            what a host left in /opt/ml, without following its links
archive            model.tar.gz: packing and unpacking
paths              what a path on the command line may not be
links              links that would lead nowhere in a container, and copies without them
log_stream         a container's log while it runs
train/             a training job on one or many hosts
serve/             a served model
commands           those of build.py
"""
