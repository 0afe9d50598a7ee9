"""What bench/smdistributed_scripts.py lays beside a published script, which it runs unchanged.

start.py       the program of each rank: runs the script, and keeps its output and its weights
trainer_start.py, trainer_data.py   the same for a script of transformers 4.26, and its model and data
one_process/   the reference: `smdistributed` in plain torch, the replicas of a job as threads of one process
packages/      small doubles of packages whose data or size a test can't have: torchvision's data sets (random numbers),
               torchnet, linformer, vit_pytorch, maskrcnn_benchmark, sagemaker_training
lacking/       packages that the scripts import and hardly use, for where they are not installed: matplotlib, sklearn,
               pandas, PIL, tensorboard
"""
