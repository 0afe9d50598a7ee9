"""Starts torchrun, one of whose ranks is killed."""

import os
import subprocess
import sys
import time

if "RANK" not in os.environ:
    subprocess.run(["torchrun", "--nproc-per-node", "2", "--master-port", "0", sys.argv[0]], check=True)
elif os.environ["RANK"] == "1":
    os.kill(os.getpid(), 9)
else:
    time.sleep(60)
