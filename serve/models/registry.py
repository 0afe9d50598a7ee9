"""The models by name: each a service with a worker of its own.

A process for each model makes what it had come back whole when it goes. No model is ever unloaded unasked while its
worker is well: if memory lacks, the load is refused with 507, upon which SageMaker unloads what it thinks best and asks
again.
"""

import asyncio
import contextlib
import errno
import gc
import logging
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from berth.runtime.memory import available_memory, trim_heap
from berth.serve.errors import Kind, ServeError
from berth.serve.figures import Load
from berth.serve.limits import RequestLimits
from berth.serve.models.arguments import first_name, name_faults, page_size
from berth.serve.models.folder import find_folder, make_scratch, needed_memory
from berth.serve.models.states import ModelAction, ModelState, Step, decide, refusal_of
from berth.serve.service import STOPPING, Service
from berth.serve.workers.pool import WorkerPool

log = logging.getLogger(__name__)

_LOOK = 0.02
"""Seconds between two looks at whether an unloading model has answered what it had accepted."""
# What a container lacks, not the model: then SageMaker unloads another model and tries again.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)


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
    """None before there is a worker, and after."""
    scratch: Path | None = None
    unloaded: "asyncio.Task[None] | None" = None
    """Set once the unloading has begun."""

    @property
    def active(self) -> int:
        """Requests that are being read or answered."""
        return self.service.active if self.service else 0

    def load_now(self) -> Load:
        """What waits, and what has been computed."""
        return self.service.load_now() if self.service else Load()

    def close(self) -> None:
        """End its worker, and remove what that kept."""
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
        """`start` makes a pool, whose workers are on their way, for a model's folder and one that goes with it, below
        `scratch`; models lie below `roots`; `available` says how many bytes of memory there are.
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
        self._unloaded = Load()

    @property
    def description(self) -> str:
        """How many workers there are, for the log."""
        return "one for each model"

    @property
    def active(self) -> int:
        """Requests that are being read or answered, those of models that are being unloaded included."""
        return sum(model.active for model in self._models.values())

    def load_now(self) -> Load:
        """Of all models together, those that were unloaded included."""
        return sum((model.load_now() for model in self._models.values()), self._unloaded)

    @property
    def waiting_seconds(self) -> float:
        """For how long the busiest model has work."""
        services = [model.service for model in self._models.values() if model.service]
        return max((service.waiting_seconds for service in services), default=0.0)

    @property
    def summary(self) -> dict[str, int]:
        """What /ping says."""
        return {"models": len(self._ready_names())}

    def start(self, on_failure: Callable[[], None] = lambda: None) -> None:
        """There is nothing to wait for, and nothing that could fail."""

    def stop(self) -> None:
        """Take nothing more from now on."""
        self.stopping = True
        for model in self._models.values():
            if model.service:
                model.service.stop()

    def close(self) -> None:
        """End every worker."""
        for model in self._models.values():
            model.close()

    def check_ready(self) -> None:
        """Pass, with any number of models, until the server stops (503)."""
        if self.stopping:
            raise ServeError(Kind.NOT_READY, STOPPING)

    async def load(self, name: str, url: str) -> None:
        """Load the model in the folder `url` under that name, once a model that is being unloaded under it is gone.

        ServeError if the name or the folder can't be used, or there is no model in it (400), the name is taken (409),
        memory or disk lacks (507), the model can't be served (500), or it is unloaded meanwhile (503); then nothing of
        it is left.
        """
        while self._decide(ModelAction.LOAD, name) is Step.WAIT:
            await self._end(self._models[name])
        model = _Model(name, url, asyncio.get_running_loop().create_future())
        self._models[name] = model
        try:
            await self._begin(model)
        except Exception as error:
            await self._end(model)
            if not isinstance(error, OSError):
                raise
            kind = Kind.NO_MEMORY if error.errno in _NO_ROOM else Kind.BROKEN_MODEL
            raise ServeError(kind, f"the model {name} can't be loaded: {error}") from error

    async def unload(self, name: str) -> None:
        """Let the model answer what it has accepted, and end it, or its load; ServeError if there is none (404)."""
        self._decide(ModelAction.UNLOAD, name)
        await self._end(self._models[name])

    def service(self, name: str) -> Service:
        """What answers for that model; ServeError if there is none (404), or it is being loaded (503)."""
        self._decide(ModelAction.INVOKE, name)
        service = self._models[name].service
        assert service is not None
        return service

    def description_of(self, name: str) -> dict[str, str]:
        """A model's entry of the list; ServeError (404) if it is not loaded."""
        self._decide(ModelAction.DESCRIBE, name)
        return self._entry(name)

    def page(self, limit: str | None, token: str | None) -> dict[str, Any]:
        """A page of the list in the order of names, with the token of the next if there is one; ServeError (400)."""
        size, first = page_size(limit), first_name(token)
        names = [name for name in self._ready_names() if name > first]
        page: dict[str, Any] = {"models": [self._entry(name) for name in names[:size]]}
        return page | {"nextPageToken": names[size - 1]} if len(names) > size else page

    def _decide(self, request: ModelAction, name: str) -> Step:
        """What a request for that name does; ServeError if it is refused."""
        if request is ModelAction.LOAD:
            self.check_ready()
        model = self._models.get(name)
        state = model.state if model else None
        decision = decide(request, state)
        if isinstance(decision, Kind):
            raise ServeError(decision, refusal_of(request, state, name))
        return decision

    def _entry(self, name: str) -> dict[str, str]:
        return {"modelName": name, "modelUrl": self._models[name].url}

    def _ready_names(self) -> list[str]:
        return sorted(name for name, model in self._models.items() if model.state is ModelState.READY)

    async def _begin(self, model: _Model) -> None:
        """Check the folder, reserve memory, start a worker and wait until it is ready; OSError or ServeError."""
        folder, faults = await asyncio.to_thread(find_folder, model.url, self._roots)
        if faults := [*name_faults(model.name), *faults]:
            raise ServeError(Kind.BAD_REQUEST, "; ".join(faults))
        needed = await asyncio.to_thread(needed_memory, folder)
        self.check_ready()
        if model.loaded.done():  # it was unloaded meanwhile
            model.loaded.result()
        room = self._room()
        if needed > room:
            raise _no_memory(model.name, needed, room)
        model.needed = needed
        model.scratch = make_scratch(self._scratch)
        model.service = Service(self._start(folder, model.scratch), self.limits, model.name)
        self._hear(model)
        await asyncio.shield(model.loaded)

    def _hear(self, model: _Model) -> None:
        """Have the model's state follow what its workers say, from whichever thread."""
        assert model.service is not None
        service, loop = model.service, asyncio.get_running_loop()

        def tell(hear: Callable[[_Model, Service], None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server ends
                loop.call_soon_threadsafe(hear, model, service)

        service.start(lambda: tell(self._fail), lambda: tell(_succeed))

    def _fail(self, model: _Model, service: Service) -> None:
        """Its workers can't be had, or not any more: then SageMaker, which gets 404 from now on, may load it again."""
        assert service.failure is not None
        if not model.loaded.done():
            kind = Kind.NO_MEMORY if service.pool.lacked_room else Kind.BROKEN_MODEL
            model.loaded.set_exception(ServeError(kind, service.failure))
        elif model.state is ModelState.READY:
            log.error("%s: unloaded, because its worker can't be started again: POST /models loads it", model.name)
            self._end(model)

    def _end(self, model: _Model) -> "asyncio.Future[None]":
        """Unload the model; the future is done when nothing of it is left, and cancelling it changes nothing."""
        if model.unloaded is None:
            model.state = ModelState.UNLOADING
            if model.service:
                model.service.stop()
            if not model.loaded.done():
                sentence = f"the model {model.name} was unloaded while it was being loaded: POST /models loads it"
                model.loaded.set_exception(ServeError(Kind.NOT_READY, sentence))
            model.loaded.exception()  # or asyncio reports that nobody has asked for it
            model.unloaded = asyncio.create_task(self._unload(model))
        return asyncio.shield(model.unloaded)

    async def _unload(self, model: _Model) -> None:
        while model.active:
            await asyncio.sleep(_LOOK)
        await asyncio.to_thread(model.close)
        computed = replace(model.load_now(), tokens=0, bodies=0, requests=0)
        self._unloaded += computed
        model.service = None
        del self._models[model.name]
        gc.collect()  # the service and its pool, which know each other, with the tokenizer that the front had
        trim_heap()

    def _room(self) -> int:
        """Bytes for another model: what is free now, and would be if each that is there took what it will need, for a
        model grows with its first requests.
        """
        models = self._models.values()
        loading = sum(model.needed for model in models if model.state is ModelState.LOADING)
        return min(self._available() - loading, self._capacity - sum(model.needed for model in models))


def _succeed(model: _Model, _service: Service) -> None:
    if not model.loaded.done():
        model.state = ModelState.READY
        model.loaded.set_result(None)


def _no_memory(name: str, needed: int, room: int) -> ServeError:
    sentence = (
        f"the model {name} needs about {needed // 10**6} MB of memory, and {max(0, room) // 10**6} MB are free: unload "
        "another model, or use an instance with more"
    )
    return ServeError(Kind.NO_MEMORY, sentence)
