"""The kit's own program, `python -m berth.train.run_qa`: question answering on SQuAD.

It needs nothing of the launcher: torchrun, or a shell, can start it as well.

program                     the job from its hyperparameters to its report; __main__ calls it
recipe, device              typed hyperparameters to completed settings; what of them GPUs and CPUs ask for
schema                      what run_qa knows, as JSON for the machine that starts the container
inputs/                     where questions come from, and how they become batches
model                       the hub or a channel to weights
ranks, trainer, evaluation  the process group and its checks, the loop, EM and F1 over all ranks
checkpoints/                what a training leaves for a next one, and how that goes on from it
stopping, stop_signal       SIGTERM and saves by time: what becomes of them in a training
agreement                   what all ranks do at the same step
reporting/                  lines, figures, curve and trace: what a job tells of itself
saved_model                 the model's files, all of them or none
export                      the model's graphs for OpenVINO, in fp32 and in int8
"""
