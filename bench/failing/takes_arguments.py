"""Reads its arguments with argparse."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.parse_args()
