"""What the images and the machine that starts them agree on: read by both sides, standard library only.

errors           a mistake of the user's, in one sentence
hyperparameters  typed values out of SageMaker's strings
nearest          which hyperparameter a name most likely means, by the field's short forms
deprecated       hyperparameters of older notebooks, and what becomes of each
launch_options   which distribution a job asks for, and the variables BERTH_*
schema           the hyperparameters that an image knows, as JSON
metric_definitions  what an estimator reads out of the log of run_qa
own_program      which program a job runs, and for which transformers the kit's own run_qa is
masking          what a log does not show
model_files      what a model folder must hold
other_models     what a folder without such a model is: an adapter, a pickle, checkpoints …
model_config     what a model's config.json says against question answering
served_model     whether the server can answer with a model, on the machine as in the image
splits           which channels run_qa reads, and for what
host_names       lists of hosts as a person reads them
gpu_hosts        which driver and GPU a host has, which CUDA needs which, and which AMI brings a newer one
variables        names of environment variables, and those that were most likely meant to be others
archive          model.tar.gz: unpacking one that a stranger may have made
"""
