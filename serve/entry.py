"""`serve`: process 1 of the inference image; it serves the model in /opt/ml/model.

Any other command replaces it (berth/runtime/dispatch.py). A mistake that is found before the server runs is one
sentence on stderr and a non-zero exit code.
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
from berth.serve.observing import log

if TYPE_CHECKING:  # other commands need not wait for the server's imports
    from berth.serve.configuration.settings import ServerSettings
    from berth.serve.limits import RequestLimits

logger = logging.getLogger("berth.serve.entry")  # `python -m` would make it `__main__`


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve, or become another command; returns the exit code."""
    # Process 1 of a container ignores SIGTERM until it has a handler. Until server.run sets its own, no request needs
    # to be finished.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    start.unblock_signals()
    log.configure(os.environ)
    image_software = software.read()
    for name, value in image_software.environment.items() if image_software else ():
        os.environ.setdefault(name, value)
    arguments = sys.argv[1:] if arguments is None else arguments
    return run_command(arguments, "serve", _serve, _refusal, _explain_not_run)


def _refusal(arguments: Sequence[str]) -> str:
    if arguments[0] == "train":
        return "this is the inference image: to train, run the training image (berth-train)"
    if arguments[0] == "serve" or arguments[0].startswith("-"):
        return f"`serve` takes no arguments (`{' '.join(arguments)}`): settings are environment variables"
    return ""


def _explain_not_run(name: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"`{name}` is not a command in this image: run it without arguments to serve"
    return f"`{name}` can't be run: {error.strerror}"


def _serve() -> int:
    if image_software := software.read():
        logger.info("%s", software.described(image_software))
    # Checked before torch is imported: torch would die without a message, and an endpoint's log would be empty. The
    # server also starts if the driver offers only some of the host's GPUs.
    gpus = driver.count_gpus(Path("/"), os.environ)
    gpu_check = start.check(driver.torch_cuda(), gpus, logger.info, every=False)
    if gpu_check.refusal:
        logger.error("%s", gpu_check.refusal)
        return 1
    from berth.runtime.cpus import model_threads  # late: other commands need not wait for these
    from berth.serve.configuration import settings
    from berth.serve.http import sockets
    from berth.serve.workers.pool import WorkerPool
    from berth.serve.workers.worker import worker_settings

    try:
        server_settings = settings.read_settings(os.environ)
        sock = sockets.listen(server_settings.port)
    except settings.SettingError as error:
        logger.error("%s", error)
        return 1
    if idle := settings.idle_variables(server_settings, os.environ):
        logger.warning("set, and without effect on this server: %s", ", ".join(idle))
    limits = replace(settings.limits_of(server_settings), open_files=sockets.raise_open_files())
    if server_settings.multi_model:
        return _serve_many(sock, limits, server_settings, gpu_check.gpus)
    visible_gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    workers = worker_settings(
        server_settings.model_dir, server_settings.workers, gpu_check.gpus, model_threads(), visible_gpus
    )
    _limit_threads(workers[0].threads)
    pool = WorkerPool(workers, limits)
    pool.start()
    from berth.serve.http import server  # while the workers load, which takes as long
    from berth.serve.models import service  # while the workers load, which takes as long

    return server.run(sock, service.Service(pool, limits), server_settings)


def _limit_threads(share: int) -> None:
    """Limit a handler's libraries to a worker's share of the CPUs. numpy and others read OMP_NUM_THREADS when they are
    imported, so the worker must inherit it. Our own engines get their threads as an argument.
    """
    if not os.environ.get("OMP_NUM_THREADS", "").strip():
        os.environ["OMP_NUM_THREADS"] = str(share)


def _serve_many(sock: socket.socket, limits: "RequestLimits", server_settings: "ServerSettings", gpus: int) -> int:
    from berth.runtime.cpus import model_threads
    from berth.serve.http import server
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

    roots = [server_settings.model_dir.with_name("models"), Path("/models")]
    with tempfile.TemporaryDirectory(prefix="berth-models-", ignore_cleanup_errors=True) as scratch:
        return server.run(sock, ModelRegistry(start_pool, roots, Path(scratch), limits), server_settings)


if __name__ == "__main__":
    sys.exit(main())
