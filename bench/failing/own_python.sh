#!/bin/bash
# Creates its own environment and starts a program there with clean variables.
set -e
python -m venv --without-pip /tmp/own
env -i PATH=/usr/bin:/bin /tmp/own/bin/python -I work.py
