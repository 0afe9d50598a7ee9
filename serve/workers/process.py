"""A worker: `python -m berth.serve.workers.process SOCKET MODEL THREADS cpu|cuda`, started by the pool.

It loads the model, answers the warm-up question, and then turns batches into logits until the other end of the socket
is closed. So no worker outlives the server, however the server ends. If the model has a handler, the worker loads and
runs that instead, with the python that has the handler's packages.
"""

import errno
import faulthandler
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from berth.runtime.engines import choose
from berth.runtime.engines.choose import LoadedModel
from berth.runtime.engines.model_folder import ModelFiles, ModelFilesError
from berth.serve import hub
from berth.serve.configuration import settings
from berth.serve.errors import ServeError
from berth.serve.observing import log
from berth.serve.questions.question_answering import warm_up
from berth.serve.user_code.environment import fetch, interpreter_for
from berth.serve.user_code.find import NoHandler, UserCode, find_code
from berth.serve.workers.messages import (
    Batch,
    BatchError,
    BatchResults,
    Failed,
    FromWorker,
    HandlerReady,
    MessageWire,
    Ready,
)

if TYPE_CHECKING:
    from berth.serve.user_code.handler import UserHandler

logger = logging.getLogger("berth.serve.workers.process")

SCRATCH = Path(tempfile.gettempdir()) / "berth-code"
"""Folder for a handler's packages, and for code and models that are fetched."""
_LONG_LOAD = 60
"""Seconds of a handler's load after which its stack is logged."""
_CUDA_ERROR = re.compile(r"(CUDA|cuDNN) error|Triton Error \[CUDA\]")


class Channel:
    """The worker's end of the socket, for all of its threads."""

    def __init__(self, wire: MessageWire) -> None:
        self._wire = wire
        self._lock = threading.Lock()

    def send(self, message: FromWorker) -> None:
        """Send a message; the process exits if the server is gone."""
        try:
            with self._lock:
                self._wire.send(message)
        except OSError:
            os._exit(0)

    def receive(self) -> Batch:
        """The next batch; the process exits if the server is gone."""
        try:
            batch = self._wire.receive()
        except (EOFError, OSError):
            os._exit(0)
        assert isinstance(batch, Batch)
        return batch


def is_cuda_error(error: BaseException) -> bool:
    """Whether CUDA itself failed, by the error's text or its type's name (torch ≥ 2.8). It does not import torch."""
    accelerator = any(each.__name__ == "AcceleratorError" for each in type(error).__mro__)
    return accelerator or _CUDA_ERROR.match(str(error)) is not None


def load(model_dir: Path, threads: int, *, cuda: bool, not_run: str) -> tuple[LoadedModel, Ready]:
    """The loaded model and its message; ModelFilesError or ServeError if it can't answer. `not_run`: why code of the
    model is not run, for the error.
    """
    began = time.monotonic()
    try:
        loaded = choose.load(model_dir, choose.settings(os.environ, threads, cuda=cuda), logger.info)
    except ModelFilesError as error:
        raise ModelFilesError(f"{error} ({not_run})" if not_run else str(error)) from error
    loaded_at = time.monotonic()
    seconds_per_token = warm_up(loaded)
    return loaded, Ready(
        info=loaded.engine.info,
        tokenizer=loaded.tokenizer.to_json(),
        model=_describe(loaded.files),
        null_threshold=loaded.files.null_threshold,
        load_seconds=loaded_at - began,
        warm_up_seconds=time.monotonic() - loaded_at,
        not_run=not_run,
        seconds_per_token=seconds_per_token,
    )


def _describe(files: ModelFiles) -> str:
    return f"{files.folder} ({files.weights}, {files.tokenizer})"


def run(channel: Channel, loaded: LoadedModel, batch: Batch) -> None:
    """Compute one batch.

    After most CUDA errors (a GPU memory error, an illegal access) a process can't use its GPU any more; after some (out
    of memory) it can. The warm-up question decides. If it fails, the process exits; a new one can use the GPU again.
    """
    try:
        logits = loaded.engine.logits(batch.rows, alone=batch.alone)
    except BaseException as error:  # nothing else would report it in this thread
        channel.send(BatchError(batch.number, f"{type(error).__name__}: {error}", traceback.format_exc()))
        if is_cuda_error(error):
            _exit_if_gpu_is_lost(loaded, str(error).partition("\n")[0])
    else:
        channel.send(BatchResults(batch.number, logits))


def _exit_if_gpu_is_lost(loaded: LoadedModel, cuda_error: str) -> None:
    try:
        warm_up(loaded)
    except BaseException:
        logger.error("the model can't use its GPU any more (%s): its worker is restarted", cuda_error)
        os._exit(1)


_STOPS = (signal.SIGINT, signal.SIGTERM)


def ignore_stop_signals() -> None:
    """Ignore SIGINT and SIGTERM, which may be sent to every process of a container: the server ends its workers itself.

    An empty handler is used, not SIG_IGN: programs that a user's handler starts would inherit SIG_IGN, and could not be
    terminated.
    """
    for number in _STOPS:
        signal.signal(number, lambda *_: None)
    # Signals are blocked during a fork until the child has its default handlers.
    os.register_at_fork(
        before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, _STOPS),
        after_in_parent=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, _STOPS),
        after_in_child=_restore_default_handlers,
    )


def _restore_default_handlers() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> None:
    """Work until the server is gone."""
    ignore_stop_signals()
    log.configure(os.environ)
    descriptor, model_dir, threads, device = arguments
    channel = Channel(MessageWire(socket.socket(fileno=int(descriptor))))
    try:
        folder = hub.model_folder(Path(model_dir), os.environ, SCRATCH, logger.info)
        code = _user_code(folder, arguments)
        if isinstance(code, UserCode):
            _run_handler(channel, code, folder, int(threads), cuda=device == "cuda")
        settings.check_for_questions(os.environ)
        # Our model needs no file from the hub: if one is missing, loading must fail at once, not try to reach the hub.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        loaded, ready = load(folder, int(threads), cuda=device == "cuda", not_run=code.reason)
    except (ModelFilesError, ServeError, settings.SettingError) as error:
        channel.send(Failed(str(error)))
        return
    except OSError as error:
        channel.send(_failed_by(error, model_dir))
        return
    except BaseException as error:  # a panic in the tokenizer's Rust code is not an Exception
        logger.exception("unexpected error while loading")
        name = type(error).__name__
        channel.send(Failed(f"the model in {model_dir} can't be loaded ({name}): the log has the details"))
        return
    channel.send(ready)
    with ThreadPoolExecutor(ready.info.slots, "engine") as slots:
        while True:
            slots.submit(run, channel, loaded, channel.receive())


def _failed_by(error: OSError, model_dir: str) -> Failed:
    """The message about a file that can't be read or written."""
    if error.filename is None:
        logger.exception("loading failed")
        return Failed(f"the model in {model_dir} can't be loaded ({error}): the log has the details")
    if isinstance(error, PermissionError):
        sentence = f"{error.filename} can't be read by this container's user ({os.getuid()}): give it the right to"
        return Failed(sentence)
    advice = "give the container more disk" if error.errno == errno.ENOSPC else "unpack the model again"
    return Failed(f"{error.filename} can't be used ({error.strerror}): {advice}")


def _user_code(model_dir: Path, arguments: Sequence[str]) -> UserCode | NoHandler:
    """The model's handler, if it has one. If the handler needs packages, this process restarts with their python."""
    environ = fetch(os.environ, SCRATCH)
    code = find_code(model_dir, environ)
    if isinstance(code, NoHandler):
        return code
    python = interpreter_for(code, SCRATCH, logger.info)
    if Path(python).parent != Path(sys.executable).parent:
        os.execve(python, [python, "-P", "-m", "berth.serve.workers.process", *arguments], environ)
    return code


def _run_handler(channel: Channel, code: UserCode, model_dir: Path, threads: int, *, cuda: bool) -> NoReturn:
    """Load and run the user's handler, in the main thread, because some libraries work only there."""
    began = time.monotonic()
    log.configure(os.environ, user_code=True)
    faulthandler.enable()  # a crash in C code logs the line of the user's file
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # one stream keeps the order of print and log lines
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # stdout is a text file here
    from berth.serve.user_code.defaults import DefaultHandler
    from berth.serve.user_code.handler import UserHandler

    limits = settings.limits_of(settings.read_settings(os.environ))
    defaults = DefaultHandler(choose.settings(os.environ, threads, cuda=cuda), limits)
    faulthandler.dump_traceback_later(_LONG_LOAD)
    handler = UserHandler(code, code.model_dir(model_dir), defaults, gpu_id=0 if cuda else None)
    faulthandler.cancel_dump_traceback_later()
    ready = HandlerReady(str(code.file), sorted(code.functions), time.monotonic() - began)
    if loaded := defaults.loaded:
        ready = replace(ready, model=_describe(loaded.files), engine=loaded.engine.info.description)
    channel.send(ready)
    while True:
        _answer_next(channel, handler)


def _answer_next(channel: Channel, handler: "UserHandler") -> None:
    """Answer one batch. It is freed on return, before the next one is received, because bodies may be large."""
    batch = channel.receive()
    channel.send(BatchResults(batch.number, [handler.answer(handler_input) for handler_input in batch.rows]))


if __name__ == "__main__":
    main()
