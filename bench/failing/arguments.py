"""Gets a hyperparameter that its argparse parser rejects."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.parse_args(["--epochs", "three"])
