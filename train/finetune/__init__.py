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
saving, random_states        checkpoints written whole or not at all, with the random states of all ranks
manifest, checkpoint_folder  what a checkpoint is, and what lies in their folder
checkpoints, identity        which one a job goes on from, and whether it is of the same training
global_batch                 a step's windows on another number of ranks
stopping, stop_signal        SIGTERM and saves by time: what becomes of them in a training
agreement                    what all ranks do at the same step
save_time                    whether a checkpoint is written in the time that a stop leaves
progress, throughput, phases lines and a bar while it trains; how fast it is, and where its seconds go
report, summary              how it writes to the log, and the table at the end
records, curve               metrics.json and history.json, TensorBoard's folder, and training.svg
trace, step_times            where the time of a few steps goes, where BERTH_TRACE asks
export                       the model's graphs for OpenVINO, in fp32 and in int8
"""
