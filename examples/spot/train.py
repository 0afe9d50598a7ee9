import json
import os
import signal
import time
from pathlib import Path

folder = Path("/opt/ml/checkpoints")
file = folder / f"state-{os.environ.get('RANK', '0')}.json"
stopped = False


def stop(number, frame):
    global stopped
    stopped = True


def save(state):
    partial = file.with_suffix(".partial")  # a file that is being uploaded must not change
    partial.write_text(json.dumps(state))
    partial.rename(file)


signal.signal(signal.SIGTERM, stop)
state = json.loads(file.read_text()) if file.exists() else {"step": 0}
while state["step"] < 200 and not stopped:
    time.sleep(0.1)  # a training step
    state["step"] += 1
    if state["step"] % 50 == 0:
        save(state)
save(state)
print("stopped at" if stopped else "finished at", "step", state["step"])
