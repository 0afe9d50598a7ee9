#!/bin/bash
accelerate launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no work.py
