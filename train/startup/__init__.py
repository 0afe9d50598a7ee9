"""Hooks that run at the start of every Python of the training image, also under SDK v3, which replaces the entrypoint.

start_hook           called by berth_start.pth: registers the other hooks; imports only what is needed
after_import         calls a function once a module has been imported
python_end           in each Python of a rank: records the exception that ended the interpreter
rank_hook            in each Python of a rank: notes whether it trains together with the other ranks; uses first_step
rank_events          these notes, and the warnings that follow from them at the end of the job
sdk3_driver          whether SDK v3's driver started this process
smdistributed_finder finds the open smdistributed if AWS's wheel is missing
partitioned_trainer  makes transformers' Trainer work with its model parallel library
cpu_trainer          makes transformers before 5 use the CPU on a host without a GPU
older_datasets       lets an older datasets read files of newer ones
metrics/             the metrics that scripts load from evaluate and datasets, without a network
"""
