"""Raises SystemExit with a text of several lines, which calls no excepthook."""

import sys
import time

print("epoch 1 of 3", file=sys.stderr, flush=True)
time.sleep(0.5)
raise SystemExit("config.yaml is wrong:\n  line 3: batch_size must be a number\n  line 9: unknown key lr")
