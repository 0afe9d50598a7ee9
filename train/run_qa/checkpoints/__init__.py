"""Writes checkpoints, and resumes a training from one.

saving, random_states        write whole checkpoints or none, with the random states of all ranks
manifest, checkpoint_folder  the files of one checkpoint, and the folder of all checkpoints
choice, identity             choose the checkpoint to resume from, and check that it is from the same training
recipe_changes               resumes with a new learning rate, schedule or length
global_batch                 keeps the windows of a step if the number of ranks changes
"""
