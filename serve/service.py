"""The service behind the routes: one thread that loads the model, warms it up, and then does every inference.

The event loop never waits for the model, so /ping answers within milliseconds while a long inference runs. The state
goes loading → ready, or loading → failed and no further; a GPU that is lost takes it from ready to failed.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from berth.serve.errors import Kind, ServeError
from berth.serve.handler import Model, PreparedRequest, QuestionAnsweringHandler
from berth.serve.models import ModelFilesError
from berth.serve.request import Request
from berth.serve.request_queue import RequestQueue

log = logging.getLogger(__name__)

_CUDA_ERROR = re.compile(r"(CUDA|cuDNN) error|Triton Error \[CUDA\]")


class Service:
    """A model and the thread that owns it."""

    def __init__(self, handler: QuestionAnsweringHandler, model_dir: Path) -> None:
        self.handler = handler
        self.model_dir = model_dir
        self.failure: str | None = None
        self._model: Model | None = None  # once it is ready
        self._running = False  # the thread is inside the model
        self._queue = RequestQueue(handler.limits)
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def start(self, on_failure: Callable[[], None] = lambda: None) -> None:
        """Begin loading, return at once; the model's thread calls `on_failure` if loading or warm-up fails, or the
        GPU later.
        """
        self._on_failure = on_failure
        self._thread.start()

    def check_ready(self) -> None:
        """Pass if a question can be answered now; ServeError (503) with the reason otherwise."""
        if self.failure is not None:
            raise ServeError(Kind.NOT_READY, self.failure)
        if not self._thread.is_alive():
            raise ServeError(Kind.NOT_READY, "the model's thread has ended: restart the container")
        if not self.ready:
            raise ServeError(Kind.NOT_READY, "the model is being loaded: ask again in a few seconds")

    @property
    def ready(self) -> bool:
        """The model is loaded and has answered its warm-up question."""
        return self._model is not None and self.failure is None

    @property
    def busy(self) -> bool:
        """The model's thread is loading or inside an inference."""
        return self._running

    def prepare(self, request: Request) -> PreparedRequest:
        """The request with its windows, in the caller's thread; ServeError if it can't be answered."""
        self.check_ready()
        assert self._model is not None
        return self.handler.prepare(request, self._model)

    def submit(self, prepared: PreparedRequest) -> Future[Any]:
        """Queue a request; ServeError (503) if too much waits already.

        The future holds the prediction or raises what the handler raised, and can be cancelled until then.
        """
        return self._queue.put(prepared)

    def _run(self) -> None:
        self._running = True
        try:
            model = self._load()
        except (ModelFilesError, ServeError) as error:
            self._fail(str(error))
            return
        except BaseException as error:  # a panic in the tokenizer's Rust code is no Exception
            log.exception("loading failed unforeseen")
            self._fail(
                f"the model in {self.model_dir} can't be loaded ({type(error).__name__}): the log has the details"
            )
            return
        finally:
            self._running = False
        self._model = model
        while True:
            self._predict_next(model)

    def _predict_next(self, model: Model) -> None:
        prepared, future = self._queue.take()
        prediction: Any = None
        failed: BaseException | None = None
        self._running = True
        try:
            if self.failure is not None:  # it was queued before
                raise ServeError(Kind.NOT_READY, self.failure)
            prediction = self.handler.predict(prepared, model, future.cancelled)
        except Exception as error:
            failed = error
            if is_cuda_error(error):
                self._try_again(error, model)
        except BaseException as error:  # the same: it must neither end this thread nor leave the request waiting
            failed = RuntimeError(f"{type(error).__name__}: {error}")
        finally:
            self._running = False
            self._queue.finish(completed=failed is None)
        if not future.set_running_or_notify_cancel():
            return
        if failed is None:
            future.set_result(prediction)
        else:
            future.set_exception(failed)

    def _try_again(self, error: Exception, model: Model) -> None:
        """Most of CUDA's errors (a memory error of the GPU, an illegal access) leave this process without a GPU for the
        rest of its life, some (out of memory) do not: the warm-up question tells.
        """
        try:
            self.handler.default_model_warmup_fn(self.model_dir, model)
        except BaseException:
            message = str(error).partition("\n")[0]
            self._fail(
                f"the model can't use its GPU any more ({message}): restart the container, and look at the host's dmesg"
            )

    def _load(self) -> Model:
        began = time.monotonic()
        model = self.handler.default_model_fn(self.model_dir)
        loaded = time.monotonic()
        self.handler.default_model_warmup_fn(self.model_dir, model)
        warm = time.monotonic()
        log.info("model: %s (%s, %s)", model.files.folder, model.files.weights, model.files.tokenizer)
        log.info("engine: %s", model.engine.description)
        if model.files.user_code is not None:
            log.warning("%s is not run: this image answers with its own handler", model.files.user_code)
        log.info("ready: loaded in %.1f s, warm-up question in %.0f ms", loaded - began, 1000 * (warm - loaded))
        return model

    def _fail(self, sentence: str) -> None:
        self.failure = sentence
        log.error("%s", sentence)
        self._on_failure()


def is_cuda_error(error: BaseException) -> bool:
    """Whether CUDA itself failed, by the text or by torch's type of it (since 2.8), which is not imported for that."""
    accelerator = any(each.__name__ == "AcceleratorError" for each in type(error).__mro__)
    return accelerator or _CUDA_ERROR.match(str(error)) is not None
