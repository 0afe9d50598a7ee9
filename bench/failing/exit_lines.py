"""Exits with a text of several lines."""

import sys

print("epoch 1 of 3", file=sys.stderr)


def main() -> None:
    sys.exit("config.yaml is wrong:\n  line 3: batch_size must be a number\n  line 9: unknown key lr")


main()
