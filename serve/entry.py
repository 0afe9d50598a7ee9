"""`serve`: process 1 of the inference image.

    IMAGE            serve the model in /opt/ml/model
    IMAGE serve      the same; this is what SageMaker sends
    IMAGE COMMAND …  run COMMAND in place of the server (a shell, a script)

Everything a user can get wrong before the server runs is one sentence on stderr and a non-zero exit code.
"""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from berth.runtime.gpu import driver, start
from berth.serve import log

logger = logging.getLogger("berth.serve.entry")  # and not `__main__`, which is its name when run by -m

CANNOT_RUN, NOT_FOUND, USAGE = 126, 127, 2  # as a shell has them


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve, or become another command; the exit code."""
    # Process 1 of a container ignores SIGTERM until it has a handler; from here to server.run's own there is nothing to
    # finish.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    start.unblock_signals()
    log.configure()
    command = list(sys.argv[1:] if arguments is None else arguments)
    if command in ([], ["serve"]):
        return _serve()
    if command[0] == "train":
        logger.error("this is the inference image: to train, run the training image (berth-train)")
        return USAGE
    if command[0] == "serve" or command[0].startswith("-"):
        logger.error("`serve` takes no arguments (`%s`): settings are environment variables", " ".join(command))
        return USAGE
    return _become(command)


def _serve() -> int:
    # The image holds every file it needs: a model that names one it lacks must say so, not wait for a hub that can't be
    # reached.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # Before torch is imported: it would die without a sentence, and on an endpoint without a line in the log. The
    # server uses one GPU and can do without the others.
    gpus = driver.count_gpus(Path("/"), os.environ)
    found = start.check(driver.torch_cuda(), gpus, logger.info, every=False)
    if found.refusal:
        logger.error("%s", found.refusal)
        return 1
    from berth.serve import server  # after the check of the arguments: other commands needn't wait for it

    try:
        return server.run(server.settings(os.environ))
    except server.SettingError as error:
        logger.error("%s", error)
        return 1


def _become(command: list[str]) -> int:
    """Replace this process by `command`; only a failure returns."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        logger.error("`%s` is no command in this image: run it without arguments to serve", command[0])
        return NOT_FOUND
    except OSError as error:
        logger.error("`%s` can't be run: %s", command[0], error.strerror)
        return CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main())
