"""Rank 1 fails and takes 5 s to exit; meanwhile rank 0 fails because of it, and mpirun ends rank 1."""

import os
import sys
import threading
import time

from tqdm import tqdm

from work import load

started = f"/tmp/failed-{os.environ['MASTER_PORT']}"
if os.environ["RANK"] == "1":
    threading.Thread(target=time.sleep, args=(5,)).start()
    for step in tqdm(range(20)):
        if step == 5:
            open(started, "w").close()
        load(step)
while not os.path.exists(started):
    time.sleep(0.1)
time.sleep(1)
sys.exit("connection closed by peer")
