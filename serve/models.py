"""Many models behind one endpoint, as SageMaker loads and unloads them: each a service with a worker of its own.

A process for each model makes what it had come back whole when it goes. Nothing is ever unloaded unasked: where memory
lacks, the load is refused with 507, upon which SageMaker unloads what it thinks best and asks again.
"""

import asyncio
import gc
import logging
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.contract.model_files import model_homes
from berth.runtime.memory import available_memory, give_back
from berth.serve.errors import Kind, ServeError
from berth.serve.figures import Load
from berth.serve.json_text import decode
from berth.serve.limits import RequestLimits
from berth.serve.service import STOPPING, Service
from berth.serve.workers.pool import WorkerPool

log = logging.getLogger(__name__)

PAGE, LARGEST_PAGE = 100, 1000
"""Models on a page of their list, unasked and at most."""
_EXAMPLE = '{"model_name": "…", "url": "/opt/ml/models/…"}'
_NAME = re.compile(r"(?!\.)[\w.-]{1,1024}", re.ASCII)
_WORKER = 160_000_000
_COPIES = 3.5
"""A worker takes so many bytes, and those of its model so often: the engine keeps each weight unpacked and twice
packed, for a full queue and for a lone request. Measured with models of 91 and 438 MB
(bench/results/2026-11-23-serve*.md)."""
_OWN_CODE = 300_000_000
"""What a handler takes that imports torch, at least."""
_UNLOAD_LOOK = 0.02  # seconds


def requested_model(body: bytes) -> tuple[str, str]:
    """The name and the folder that a body of POST /models asks for; ServeError (400) with all that is wrong."""
    if not body.strip():
        raise ServeError(Kind.BAD_REQUEST, f"the body is empty: send {_EXAMPLE}")
    value = decode(body.decode("utf-8", "replace"), "the body")
    if not isinstance(value, dict):
        raise ServeError(Kind.BAD_REQUEST, f"the body must be {_EXAMPLE}")
    faults = [
        f"`{field}` is missing: it must be a string"
        for field in ("model_name", "url")
        if not isinstance(value.get(field), str) or not value[field]
    ]
    if faults:
        raise ServeError(Kind.BAD_REQUEST, "; ".join(faults))
    return value["model_name"], value["url"]


def needed_memory(folder: Path) -> int:
    """Bytes that a worker for the model in this folder will take, as far as its files tell."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    if any(path.parent.name == "code" and path.suffix == ".py" for path in files):
        return _OWN_CODE + sum(path.stat().st_size for path in files)
    weights = [path for path in files if path.suffix in (".safetensors", ".bin") and path.parent.name != "openvino"]
    return _WORKER + int(_COPIES * sum(path.stat().st_size for path in weights))


@dataclass(eq=False, slots=True)
class _Model:
    """A model that is loaded, or being loaded: then `needed` bytes are spoken for."""

    url: str
    service: Service
    needed: int
    scratch: Path

    def close(self) -> None:
        """End its worker, and remove what it kept."""
        self.service.close()
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
        """Requests that are being read or answered."""
        return sum(model.service.active for model in self._models.values())

    def load_now(self) -> Load:
        """Of all models together, those that were unloaded included."""
        return sum((model.service.load_now() for model in self._models.values()), self._unloaded)

    @property
    def waiting_seconds(self) -> float:
        """For how long the busiest model has work."""
        return max((model.service.waiting_seconds for model in self._models.values()), default=0.0)

    @property
    def summary(self) -> dict[str, int]:
        """What /ping says."""
        return {"models": len(self._models)}

    def start(self, on_failure: Callable[[], None] = lambda: None) -> None:
        """There is nothing to wait for, and nothing that could fail."""

    def stop(self) -> None:
        """Take nothing more from now on."""
        self.stopping = True
        for model in self._models.values():
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
        """Load the model in the folder `url` under that name.

        ServeError if the name or the folder can't be, or there is no model in it (400), the name is taken (409), memory
        lacks (507), or the model can't be served (500); then nothing of it is left.
        """
        self.check_ready()
        folder = self._folder(name, url)
        if name in self._models:
            state = "loaded" if self._models[name].service.is_loaded else "being loaded"
            raise ServeError(Kind.CONFLICT, f"the model {name} is {state} already: unload it first")
        needed = needed_memory(folder)
        room = self._room()
        if needed > room:
            raise ServeError(
                Kind.NO_MEMORY,
                f"the model {name} needs about {needed // 10**6} MB of memory, and {max(0, room) // 10**6} MB are "
                "free: unload another model, or use an instance with more",
            )
        scratch = self._scratch / name
        model = _Model(url, Service(self._start(folder, scratch), self.limits, name), needed, scratch)
        self._models[name] = model
        try:
            await _loaded(model.service)
        except ServeError:
            await asyncio.to_thread(model.close)
            del self._models[name]
            raise

    async def unload(self, name: str) -> None:
        """Let the model answer what it has accepted, and end it; ServeError if there is none (404), or if it is being
        loaded (409).
        """
        model = self._known(name, "GET /models lists those that are loaded")
        if not model.service.is_loaded:
            raise ServeError(Kind.CONFLICT, f"the model {name} is being loaded: unload it when it is")
        del self._models[name]
        model.service.stop()
        while model.service.active:
            await asyncio.sleep(_UNLOAD_LOOK)
        self._unloaded += model.service.load_now()
        await asyncio.to_thread(model.close)
        del model
        gc.collect()  # the service and its pool, which know each other, with the tokenizer that the front had
        give_back()

    def service(self, name: str) -> Service:
        """What answers for that model; ServeError (404) if there is none."""
        return self._known(name).service

    def description_of(self, name: str) -> dict[str, str]:
        """A model's entry of the list; ServeError (404) if there is none."""
        return {"modelName": name, "modelUrl": self._known(name).url}

    def page(self, limit: str | None, token: str | None) -> dict[str, Any]:
        """A page of the list in the order of names, with the token of the next if there is one; ServeError (400)."""
        if limit is not None and not (limit.isdecimal() and 1 <= int(limit) <= LARGEST_PAGE):
            raise ServeError(Kind.BAD_REQUEST, f"`limit` must be a whole number from 1 to {LARGEST_PAGE}")
        if token and not _NAME.fullmatch(token):
            sentence = "`next_page_token` is none: send the `nextPageToken` of the page before, or leave it out"
            raise ServeError(Kind.BAD_REQUEST, sentence)
        size = int(limit) if limit else PAGE
        names = sorted(name for name, model in self._models.items() if model.service.is_loaded and name > (token or ""))
        page: dict[str, Any] = {"models": [self.description_of(name) for name in names[:size]]}
        return page | {"nextPageToken": names[size - 1]} if len(names) > size else page

    def _room(self) -> int:
        """Bytes for another model: what is free now, and would be if each that is there took what it will need, for a
        model grows with its first requests.
        """
        models = self._models.values()
        loading = sum(model.needed for model in models if not model.service.is_loaded)
        return min(self._available() - loading, self._capacity - sum(model.needed for model in models))

    def _known(self, name: str, advice: str = "POST /models loads one") -> _Model:
        if name not in self._models:
            raise ServeError(Kind.NOT_FOUND, f"there is no model {name[:80]}: {advice}")
        return self._models[name]

    def _folder(self, name: str, url: str) -> Path:
        """The model's folder; ServeError (400) if it can't be one, or the name can't be."""
        faults = []
        if not _NAME.fullmatch(name):
            faults.append(f"`model_name` is `{name[:80]}`: letters, digits, `_`, `-` and `.` make a name")
        folder = _resolved(url)
        if not any(folder.is_relative_to(root) for root in self._roots):
            faults.append(f"`url` is `{url[:80]}`: it must be a folder below {' or '.join(map(str, self._roots))}")
        elif not folder.is_dir():
            faults.append(f"`url` is `{url[:80]}`: there is no such folder")
        elif not model_homes(folder) and not any(folder.rglob("*.py")):
            faults.append(
                f"`url` is `{url[:80]}`, which has no config.json, nor has a folder in it: pack the files of one model "
                "into model.tar.gz, or code of its own as code/inference.py"
            )
        if faults:
            raise ServeError(Kind.BAD_REQUEST, "; ".join(faults))
        return folder


def _resolved(url: str) -> Path:
    """Where it leads; the root, below which no model may be, where that can't be said."""
    try:
        return Path(url).resolve()
    except (OSError, ValueError, RuntimeError):  # a NUL in it, or a circle of links
        return Path("/")


async def _loaded(service: Service) -> None:
    """Wait until the service is ready; ServeError if it can't be, with 507 where the kernel killed its worker."""
    loop = asyncio.get_running_loop()
    known = asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(known.set)

    service.start(tell, tell)
    await known.wait()
    if service.failure is not None:
        kind = Kind.NO_MEMORY if service.pool.was_killed else Kind.BROKEN_MODEL
        raise ServeError(kind, service.failure)
