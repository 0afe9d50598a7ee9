"""The program's own watchdog ends it with SIGTERM."""

import os
import signal

os.kill(os.getpid(), signal.SIGTERM)
