"""The parts of run_qa: hyperparameters to settings, data to features, training, evaluation, report.

recipe, device               typed hyperparameters to completed settings; what of them GPUs and CPUs ask for
schema                       what run_qa knows, as JSON for the machine that starts the container
data, questions              where the questions of each split come from, and they themselves, one after another
window_file, job_data        the windows to train on, in files; all that a job reads
model, features              the hub or a channel to weights, windows to batches
hub                          whether the hub can be reached, before anything is asked of it
divided                      channels of which each host has some of the files
ranks, trainer, evaluation   the process group and its checks, the loop, EM and F1 over all ranks
cpu_fsdp                     the loop over weights that are spread over ranks without a GPU
checkpoints, report          where a job goes on, and what it says and leaves
export                       the model's graphs for OpenVINO, in fp32 and in int8
"""
