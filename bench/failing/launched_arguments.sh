#!/bin/bash
# torch's older launcher gives each rank an argument that the script does not know.
python -m torch.distributed.launch --nproc-per-node 2 --master-port 0 takes_arguments.py --epochs 1
