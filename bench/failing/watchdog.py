"""Is ended by faulthandler because a step takes too long."""

import faulthandler
import threading


def step(number: int) -> None:
    if number == 2:
        threading.Event().wait()


faulthandler.dump_traceback_later(2, exit=True)
for number in range(3):
    print("step", number, flush=True)
    step(number)
