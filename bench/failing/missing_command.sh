#!/bin/bash
# Calls a tool that is not in the image.
set -euo pipefail
echo "image of $(uname -s)"
nvidia-smi --list-gpus
python work.py
