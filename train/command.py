"""The console script `train`: holds SIGTERM and SIGINT back until the entry has handlers for them.

The kernel drops a signal to process 1 of a container that it has no handler for, but keeps one that is blocked. The
entry's imports take most of the first second of a job, and a job that is stopped in it is to end, not to train on.
"""

import signal
import sys

_HELD = (signal.SIGTERM, signal.SIGINT)


def main() -> int:
    """The exit code of `train`, or of what is run instead."""
    arguments = sys.argv[1:]
    # Only what trains lets them through again (entry.py): another program that runs instead would inherit the mask.
    if arguments in ([], ["train"]):
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    from berth.train.entry import dispatch  # only now, for it takes long

    return dispatch(arguments)


if __name__ == "__main__":
    sys.exit(main())
