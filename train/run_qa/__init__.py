"""The kit's own program, `python -m berth.train.run_qa`: question answering on SQuAD.

It does not need berth's launcher: torchrun or a shell can start it, too.

program                     the whole job, from its hyperparameters to its report; __main__ calls it
recipe, device              completes the hyperparameters to a job's settings; fits the settings to GPU or CPU
schema                      run_qa's hyperparameters as JSON, for the machine that starts the container
inputs/                     where questions come from, and how they become batches
model                       loads the model from a channel, a path or the hub
ranks, trainer, evaluation  the process group and its checks, the training loop, EM and F1 over all ranks
checkpoints/                writes checkpoints, and chooses the one to resume from
stopping, stop_signal       stops on SIGTERM; saves every few minutes
agreement                   lets all ranks save and stop at the same step
reporting/                  progress lines, metrics, the curve and the trace of a job
saved_model                 writes the model's files: all of them or none
export                      the model's graphs for OpenVINO, in fp32 and in int8
"""
