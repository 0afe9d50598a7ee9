"""Rules that the images and the user's machine share. Standard library only.

errors              JobError, an error that the user can fix
hyperparameters     parses SageMaker's strings into typed values
nearest             suggests the hyperparameter that a misspelt or shortened name means
deprecated          hyperparameters of older notebooks and their replacements
launch_options      the distribution that a job requests, and the variables BERTH_*
schema              the hyperparameters of an image, as JSON
metric_definitions  the metrics that an estimator reads from the log of run_qa
own_program         which program a job runs, and which transformers run_qa needs
masking             hides secrets in logs
model_files         the files that a model folder must hold
other_models        recognises folders without a usable model: an adapter, a pickle, checkpoints …
served_model        whether the server can answer questions with a model, from its files and config.json
splits              which channels run_qa reads for which task
words               a noun with its number, the first of many names
host_names          short lists of host names
gpu_hosts           GPUs and drivers of SageMaker's hosts, the driver that each CUDA needs, AMIs with a newer one
variables           finds misspelt environment variables
archive             unpacks a model.tar.gz from an untrusted source
"""
