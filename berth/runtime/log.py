"""Prefixes of berth's log lines in both images.

The log handlers differ: training's (train/hosts/log.py) writes whole lines of several processes to stdout and hides
secrets; the server's (serve/observing/log.py) writes to stderr and also handles the logs of its libraries.
"""

PREFIX = "berth: "
ERROR_PREFIX = "berth: error: "
"""Prefix of the error that ends a container because of a user's mistake; programs that start containers parse it."""
