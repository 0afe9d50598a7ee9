#!/bin/bash
# Ends its program after two seconds.
timeout 2 python -c 'import time; print("epoch 1", flush=True); time.sleep(60)'
