"""Reads its hyperparameters by argparse, and gets one that it does not know."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.parse_args(["--epochs", "three"])
