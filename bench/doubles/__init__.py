"""What bench/smdistributed_scripts.py lays beside a published script, which it runs unchanged.

start.py       the program of each rank: runs the script, and keeps its output and its weights
trainer_data.py   model and data of a script of transformers 4.26, which needs no start.py
one_process/   the reference: `smdistributed` in plain torch, the replicas of a job as threads of one process
packages/      small doubles of packages whose data or size a test can't have: torchvision's data sets (random numbers),
               torchnet, linformer, vit_pytorch, maskrcnn_benchmark
lacking/       packages that the scripts import and hardly use, for where they are not installed: matplotlib, sklearn,
               pandas, PIL, tensorboard, h5py
"""
