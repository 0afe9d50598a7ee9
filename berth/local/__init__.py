"""Runs berth's images on this machine as SageMaker does: training jobs and endpoints.

opt_ml             the content of /opt/ml in a container, in SageMaker's layout
demo               trains on the embedded sample, serves the model, and asks it
gpu_check          runs the images' check of this machine's GPUs
session            one run: its containers, network and scratch folder, removed at its end
cleanup            removes what a run left, also if it was killed
chown              gives files that a container wrote as root to the caller
signals            Ctrl-C and SIGTERM as a flag
pip_secrets        this machine's CA, index and wheels, for a job's pip
output_folders     the folders of results
results            reads a host's /opt/ml without following links that lead out of it
archive            model.tar.gz: packing and unpacking
paths              rejects addresses and hub names where a path is needed
links              finds links that would lead nowhere in a container, and copies folders without them
log_stream         a container's log while it runs
train/             a training job on one or many hosts
serve/             a served model
commands           the commands of build.py
"""
