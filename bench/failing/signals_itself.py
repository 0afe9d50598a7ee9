"""A watchdog of its own ends it by SIGTERM."""

import os
import signal

os.kill(os.getpid(), signal.SIGTERM)
