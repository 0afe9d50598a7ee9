#!/bin/bash
# torch's older launcher passes each rank an argument that the script rejects.
python -m torch.distributed.launch --nproc-per-node 2 --master-port 0 takes_arguments.py --epochs 1
