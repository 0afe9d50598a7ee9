"""Rank 1 fails under a progress bar and takes 5 s to end; mpirun ends it meanwhile, for rank 0 fails of that."""

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
