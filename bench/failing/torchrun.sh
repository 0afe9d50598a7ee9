#!/bin/bash
torchrun --nproc-per-node 2 --master-port 0 work.py
