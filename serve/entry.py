"""`serve`: process 1 of the inference image; it serves the model in /opt/ml/model.

Other commands than `serve` run in its place (berth/runtime/dispatch.py). Everything a user can get wrong before the
server runs is one sentence on stderr and a non-zero exit code.
"""

import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from berth.runtime import software
from berth.runtime.dispatch import run_command
from berth.runtime.gpu import driver, start
from berth.serve import log

if TYPE_CHECKING:  # what serving imports, other commands needn't wait for
    from berth.serve.limits import RequestLimits
    from berth.serve.settings import ServerSettings

logger = logging.getLogger("berth.serve.entry")  # and not `__main__`, which is its name when run by -m


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve, or become another command; the exit code."""
    # Process 1 of a container ignores SIGTERM until it has a handler; from here to server.run's own there is nothing to
    # finish.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    start.unblock_signals()
    log.configure(os.environ)
    carried = software.read()
    for name, value in carried.environment.items() if carried else ():
        os.environ.setdefault(name, value)
    arguments = sys.argv[1:] if arguments is None else arguments
    return run_command(arguments, "serve", _serve, _refusal, _not_run)


def _refusal(arguments: Sequence[str]) -> str:
    if arguments[0] == "train":
        return "this is the inference image: to train, run the training image (berth-train)"
    if arguments[0] == "serve" or arguments[0].startswith("-"):
        return f"`serve` takes no arguments (`{' '.join(arguments)}`): settings are environment variables"
    return ""


def _not_run(name: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"`{name}` is no command in this image: run it without arguments to serve"
    return f"`{name}` can't be run: {error.strerror}"


def _serve() -> int:
    if carried := software.read():
        logger.info("%s", software.described(carried))
    # Before torch is imported: it would die without a sentence, and on an endpoint without a line in the log. The
    # server can do without a GPU that the driver does not offer.
    gpus = driver.count_gpus(Path("/"), os.environ)
    found = start.check(driver.torch_cuda(), gpus, logger.info, every=False)
    if found.refusal:
        logger.error("%s", found.refusal)
        return 1
    from berth.runtime.cpus import model_threads  # after the check of the arguments: others needn't wait for these
    from berth.serve import settings, sockets
    from berth.serve.workers.pool import WorkerPool
    from berth.serve.workers.worker import worker_settings

    try:
        chosen = settings.read_settings(os.environ)
        sock = sockets.listen(chosen.port)
    except settings.SettingError as error:
        logger.error("%s", error)
        return 1
    if idle := settings.idle_variables(chosen, os.environ):
        logger.warning("set, and without effect on this server: %s", ", ".join(idle))
    limits = replace(settings.limits_of(chosen), open_files=sockets.raise_open_files())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen.multi_model:
        return _serve_many(sock, limits, chosen, found.gpus)
    workers = worker_settings(chosen.model_dir, chosen.workers, found.gpus, model_threads(), visible)
    _limit_threads(workers[0].threads)
    pool = WorkerPool(workers, limits)
    pool.start()
    from berth.serve import server, service  # next to the workers, which take as long

    return server.run(sock, service.Service(pool, limits), chosen)


def _limit_threads(share: int) -> None:
    """Have the libraries of a handler use a worker's share of the CPUs: numpy and others read this when they are
    imported, which is before a worker runs code of ours. Our engines are told their threads.
    """
    if not os.environ.get("OMP_NUM_THREADS", "").strip():
        os.environ["OMP_NUM_THREADS"] = str(share)


def _serve_many(sock: socket.socket, limits: "RequestLimits", chosen: "ServerSettings", gpus: int) -> int:
    from berth.runtime.cpus import model_threads
    from berth.serve import server
    from berth.serve.models.folder import worker_environment
    from berth.serve.models.registry import ModelRegistry
    from berth.serve.workers.pool import WorkerPool
    from berth.serve.workers.worker import WorkerSettings

    if gpus:
        logger.error("a multi-model endpoint of this image runs on CPUs: choose an instance type without a GPU")
        return 1

    _limit_threads(model_threads())

    def start_pool(folder: Path, scratch: Path) -> WorkerPool:
        pool = WorkerPool([WorkerSettings(folder, model_threads(), "cpu", worker_environment(scratch))], limits)
        pool.start()
        return pool

    roots = [chosen.model_dir.with_name("models"), Path("/models")]
    with tempfile.TemporaryDirectory(prefix="berth-models-", ignore_cleanup_errors=True) as scratch:
        return server.run(sock, ModelRegistry(start_pool, roots, Path(scratch), limits), chosen)


if __name__ == "__main__":
    sys.exit(main())
