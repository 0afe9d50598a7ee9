"""The loaded models by name: each is a service with its own worker.

Each model has its own process, so that unloading it frees all of its memory. The server unloads a model unasked only if
its worker can't be restarted. If a model does not fit into memory, its load is refused with 507; SageMaker then unloads
another model and tries again.

SageMaker's contract: 409 for loading a loaded name; 404 for other requests for a name that is not loaded (SageMaker
then loads the model); an unload answers only when the memory is free:
https://docs.aws.amazon.com/sagemaker/latest/dg/mms-container-apis.html
"""

import asyncio
import contextlib
import errno
import gc
import logging
import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from berth.runtime.memory import available_memory, trim_heap
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits
from berth.serve.models.arguments import check_name, page_size
from berth.serve.models.folder import find_folder, make_scratch, needed_memory
from berth.serve.models.service import STOPPING, Service
from berth.serve.observing.figures import Work
from berth.serve.workers.pool import WorkerPool

log = logging.getLogger(__name__)

_POLL_INTERVAL = 0.02
"""Seconds between two checks whether a model that is being unloaded has answered all accepted requests."""
# The container is at fault, not the model: answered with 507, so that SageMaker unloads another model and tries again.
_RESOURCE_ERRORS = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
_LISTED = "GET /models lists the models that are loaded"


class ModelState(StrEnum):
    """A model is LOADING, then READY, then UNLOADING, and then removed. If its load fails or is ended, it skips READY.
    The value completes the sentence "the model is …".
    """

    LOADING = "being loaded"
    READY = "loaded"
    UNLOADING = "being unloaded"


@dataclass(eq=False, slots=True)
class _Model:
    """A model from the beginning of its load to the end of its unloading."""

    name: str
    url: str
    loaded: "asyncio.Future[None]"
    """Done when the load has ended, with ServeError if it has failed."""
    state: ModelState = ModelState.LOADING
    needed: int = 0
    """Bytes of memory that are reserved for it."""
    service: Service | None = None
    """None before the worker is started, and after it has ended."""
    scratch: Path | None = None
    unloaded: "asyncio.Task[None] | None" = None
    """Set once the unloading has begun."""

    @property
    def active(self) -> int:
        """Requests that are being read or answered."""
        return self.service.active if self.service else 0

    @property
    def work(self) -> Work:
        """The work that waits, and the work done since the load."""
        return self.service.work if self.service else Work()

    def close(self) -> None:
        """End its worker, and remove the worker's files."""
        if self.service:
            self.service.close()
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)


class ModelRegistry:
    """The models by name; used by the event loop only."""

    def __init__(
        self,
        start: Callable[[Path, Path], WorkerPool],
        roots: Iterable[Path],
        scratch: Path,
        limits: RequestLimits,
        available: Callable[[], int] = available_memory,
    ) -> None:
        """`start`: starts a pool for a model's folder and a scratch folder below `scratch`. `roots`: the folders from
        which models may be loaded. `available`: bytes of free memory.
        """
        self.limits = limits
        self.failure: str | None = None
        self.stopping = False
        self.workers = 1
        self._start = start
        self._roots = [root.resolve() for root in roots]
        self._scratch = scratch
        self._available = available
        self._capacity = available()
        self._models: dict[str, _Model] = {}
        self._unloaded = Work()

    @property
    def description(self) -> str:
        """How many workers there are, for the log."""
        return "one for each model"

    @property
    def active(self) -> int:
        """Requests that are being read or answered, including those of models that are being unloaded."""
        return sum(model.active for model in self._models.values())

    @property
    def work(self) -> Work:
        """The sum over all models, including those that were unloaded."""
        return sum((model.work for model in self._models.values()), self._unloaded)

    @property
    def waiting_seconds(self) -> float:
        """Seconds of work that wait for the busiest model."""
        services = [model.service for model in self._models.values() if model.service]
        return max((service.waiting_seconds for service in services), default=0.0)

    @property
    def summary(self) -> dict[str, int]:
        """The body of /ping."""
        return {"models": len(self._ready_names())}

    def start(self, on_failure: Callable[[], None] = lambda: None) -> None:
        """Do nothing: without a model there is nothing to wait for, and nothing can fail."""

    def stop(self) -> None:
        """Refuse new requests from now on."""
        self.stopping = True
        for model in self._models.values():
            if model.service:
                model.service.stop()

    def close(self) -> None:
        """End every worker."""
        for model in self._models.values():
            model.close()

    def check_ready(self) -> None:
        """ServeError (503) if the server is stopping; it is ready with any number of models."""
        if self.stopping:
            raise ServeError(Kind.NOT_READY, STOPPING)

    async def load(self, name: str, url: str) -> None:
        """Load the model in the folder `url` as `name`. If a model of that name is being unloaded, wait for that first.

        ServeError if the name or folder is invalid or holds no model (400), the name is in use (409), there is not
        enough memory (507), the model can't be served (500), or it is unloaded meanwhile (503). After an error
        nothing of the model is left.
        """
        self.check_ready()
        while same_name := self._models.get(name):
            if same_name.state is not ModelState.UNLOADING:
                raise ServeError(Kind.CONFLICT, f"the model {name[:80]} is {same_name.state}: unload it first")
            await self._end(same_name)
            self.check_ready()
        model = _Model(name, url, asyncio.get_running_loop().create_future())
        self._models[name] = model
        try:
            await self._begin(model)
        except Exception as error:
            await self._end(model)
            if not isinstance(error, OSError):
                raise
            kind = Kind.NO_MEMORY if error.errno in _RESOURCE_ERRORS else Kind.BROKEN_MODEL
            raise ServeError(kind, f"the model {name} can't be loaded: {error}") from error

    async def unload(self, name: str) -> None:
        """Let the model answer its accepted requests, and unload it; or end its load. ServeError (404) if unknown."""
        await self._end(self._find(name, tuple(ModelState), _LISTED))

    def service(self, name: str) -> Service:
        """The service of that model; ServeError if it is not loaded (404) or being loaded (503)."""
        model = self._find(name, (ModelState.LOADING, ModelState.READY), "POST /models loads it")
        if model.state is ModelState.LOADING:
            sentence = f"the model {name[:80]} is being loaded: ask again in a few seconds"
            raise ServeError(Kind.NOT_READY, sentence)
        assert model.service is not None
        return model.service

    def description_of(self, name: str) -> dict[str, str]:
        """A model's entry of the list; ServeError (404) if it is not loaded."""
        return _entry(self._find(name, (ModelState.READY,), _LISTED))

    def page(self, limit: str | None, token: str | None) -> dict[str, Any]:
        """A page of the list, ordered by name, with the token of the next page if there is one: its last name.

        ServeError (400) for an invalid `limit`.
        """
        size = page_size(limit)
        names = [name for name in self._ready_names() if name > (token or "")]
        page: dict[str, Any] = {"models": [_entry(self._models[name]) for name in names[:size]]}
        return page | {"nextPageToken": names[size - 1]} if len(names) > size else page

    def _find(self, name: str, states: Collection[ModelState], advice: str) -> _Model:
        """The model of that name; ServeError (404) if there is none in one of these states."""
        model = self._models.get(name)
        if model is None:
            raise ServeError(Kind.NOT_FOUND, f"there is no model {name[:80]}: {advice}")
        if model.state not in states:
            raise ServeError(Kind.NOT_FOUND, f"the model {name[:80]} is {model.state}: {advice}")
        return model

    def _ready_names(self) -> list[str]:
        return sorted(name for name, model in self._models.items() if model.state is ModelState.READY)

    async def _begin(self, model: _Model) -> None:
        """Check the folder, reserve memory, start a worker and wait until it is ready; OSError or ServeError."""
        check_name(model.name)
        folder = await asyncio.to_thread(find_folder, model.url, self._roots)
        needed = await asyncio.to_thread(needed_memory, folder)
        self.check_ready()
        if model.loaded.done():  # it was unloaded meanwhile
            model.loaded.result()
        room = self._room()
        if needed > room:
            raise ServeError(
                Kind.NO_MEMORY,
                f"the model {model.name} needs about {needed // 10**6} MB of memory, and {max(0, room) // 10**6} MB "
                "are free: unload another model, or use an instance with more",
            )
        model.needed = needed
        model.scratch = make_scratch(self._scratch)
        model.service = Service(self._start(folder, model.scratch), self.limits, model.name)
        self._follow(model)
        await asyncio.shield(model.loaded)

    def _follow(self, model: _Model) -> None:
        """Update the model's state when its worker is ready or fails. The worker's threads call back."""
        assert model.service is not None
        service, loop = model.service, asyncio.get_running_loop()

        def schedule(update: Callable[[_Model, Service], None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server ends
                loop.call_soon_threadsafe(update, model, service)

        service.start(lambda: schedule(self._fail), lambda: schedule(_succeed))

    def _fail(self, model: _Model, service: Service) -> None:
        """Its worker can't be started or restarted. From now on SageMaker gets 404, and may load it again."""
        assert service.failure is not None
        if not model.loaded.done():
            kind = Kind.NO_MEMORY if service.pool.lacked_memory else Kind.BROKEN_MODEL
            model.loaded.set_exception(ServeError(kind, service.failure))
        elif model.state is ModelState.READY:
            log.error("%s: unloaded, because its worker can't be started again: POST /models loads it", model.name)
            self._end(model)

    def _end(self, model: _Model) -> "asyncio.Future[None]":
        """Unload the model; the future is done when nothing of it is left. Cancelling the future has no effect."""
        if model.unloaded is None:
            model.state = ModelState.UNLOADING
            if model.service:
                model.service.stop()
            if not model.loaded.done():
                sentence = f"the model {model.name} was unloaded while it was being loaded: POST /models loads it"
                model.loaded.set_exception(ServeError(Kind.NOT_READY, sentence))
            model.loaded.exception()  # otherwise asyncio reports an exception that was never retrieved
            model.unloaded = asyncio.create_task(self._unload(model))
        return asyncio.shield(model.unloaded)

    async def _unload(self, model: _Model) -> None:
        while model.active:
            await asyncio.sleep(_POLL_INTERVAL)
        await asyncio.to_thread(model.close)
        self._unloaded += model.work
        model.service = None
        del self._models[model.name]
        gc.collect()  # frees the service and its pool, which refer to each other, and their tokenizer
        trim_heap()

    def _room(self) -> int:
        """Bytes for another model: the smaller of the memory that is free now, less the needs of loading models, and
        the memory that stays free when all models have grown to their needs, as they do with their first requests.
        """
        models = self._models.values()
        loading = sum(model.needed for model in models if model.state is ModelState.LOADING)
        return min(self._available() - loading, self._capacity - sum(model.needed for model in models))


def _entry(model: _Model) -> dict[str, str]:
    return {"modelName": model.name, "modelUrl": model.url}


def _succeed(model: _Model, _service: Service) -> None:
    if not model.loaded.done():
        model.state = ModelState.READY
        model.loaded.set_result(None)
