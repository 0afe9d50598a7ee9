"""The console script `train`: blocks SIGTERM and SIGINT until the entry has installed its handlers.

The kernel drops a signal for which a container's process 1 has no handler, but keeps one that is blocked. The entry's
imports take most of a job's first second; a job that is stopped during that second must end.
"""

import signal
import sys

_BLOCKED_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main() -> int:
    """Train, or run another command instead; returns the exit code."""
    arguments = sys.argv[1:]
    # Only if this trains: entry.py unblocks them then. Any other program would inherit the mask.
    if arguments in ([], ["train"]):
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED_SIGNALS)
    from berth.train.entry import dispatch  # a slow import, so only now

    return dispatch(arguments)


if __name__ == "__main__":
    sys.exit(main())
