"""What every Python of the training image does at its start, also under SDK v3, which replaces the entry.

start_hook           called by berth_start.pth: registers what follows, and imports nothing that is not needed
after_import         calls a function once a module has been imported
python_end           in a Python of a rank: records the exception with which the interpreter ends
rank_hook            in a Python of a rank: what it does to train together with others; first_step is part of it
rank_events          these notes, and what they show at the job's end
sdk3_driver          whether SDK v3's driver started this process
smdistributed_finder finds the open smdistributed if AWS's wheel is missing
partitioned_trainer  has transformers' Trainer use it
cpu_trainer          has transformers before 5 take the CPU on a host without a GPU
older_datasets       has an older datasets read files of newer ones
gloo_threads         lets gloo's threads come to rest before Python ends
metrics/             the metrics that scripts ask evaluate and datasets for, without a network
"""
