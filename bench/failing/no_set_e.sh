#!/bin/bash
# Continues after the training failed, and fails because its file is missing.
python work.py --output out
cp out/model.safetensors /opt/ml/model/
