"""How a line of the kit's log begins, in both images.

What writes the lines stays apart: training's handler (train/hosts/log.py) writes those of several processes whole, to
stdout, and hides secrets; the server's (serve/log.py) takes in those of its libraries, on stderr.
"""

PREFIX = "berth: "
ERROR_PREFIX = "berth: error: "
"""Of the one sentence that a user's mistake ends in; what starts a container reads it off its output."""
