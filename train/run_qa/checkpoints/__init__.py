"""What a training leaves for a next one, and how that goes on from it.

saving, random_states        checkpoints written whole or not at all, with the random states of all ranks
manifest, checkpoint_folder  what a checkpoint is, and what lies in their folder
choice, identity             which one a job goes on from, and whether it is of the same training
recipe_changes               a learning rate, schedule or length that is not the checkpoint's
global_batch                 a step's windows on another number of ranks
"""
