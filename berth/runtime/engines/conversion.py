"""Makes the graph of a model that has none, once for all workers of a server.

    FOLDER/<digest>/            the graph, under a digest of the model's files and OpenVINO's version
    FOLDER/<digest>.refused     why this server's workers run without it

The first worker makes it under a lock, or records why it can't. The others do the same, so all of a server's workers
run the same engine.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from berth.runtime import whole_files
from berth.runtime.engines import graph
from berth.runtime.engines.graph import GraphError, fault_of, read_manifest, source_files
from berth.runtime.engines.model_folder import ModelFilesError
from berth.runtime.host_files import read_text
from berth.runtime.memory import available_memory

_LOCKS = Path("/tmp")
_LOCK = "berth-conversion.lock"
"""One lock per container, not per model's TMPDIR: two conversions at a time would both count on the same memory."""
_BASE_BYTES, _COPIES = 400_000_000, 2
"""Memory of a conversion: _BASE_BYTES + _COPIES × the size of the weights. Measured peaks with libraries: 516, 683 and
1,374 MB for weights of 0, 90 and 435 MB."""


def kept_folder(folder: Path, hashes: Mapping[str, str], openvino: str) -> Path:
    """The folder below `folder` for a model's graph; its name depends on the model's files and OpenVINO's version.

    `hashes`: see `graph.hash_sources`.
    """
    key = json.dumps([openvino, sorted(hashes.items())])
    return folder / hashlib.sha256(key.encode()).hexdigest()[:16]


def make_graph_once(
    model: Path, kept: Path, openvino: str, say: Callable[[str], None], available: Callable[[], int] = available_memory
) -> None:
    """Make the model's graph in the folder `kept`, unless it exists. The first worker makes it, the others wait.

    GraphError or ModelFilesError if it can't be made, the same for all workers of this server. `available` returns the
    bytes of free memory.
    """
    if _is_usable(kept, openvino):
        return
    with _locked(kept.parent):
        if _is_usable(kept, openvino):
            return
        _check_refusal(kept)
        try:
            _check_disk_and_memory(kept.parent, model, available())
            say(f"{model} has no graph for OpenVINO: making one takes some seconds, at each start of a container")
            graph.make(model, kept)
        except (GraphError, ModelFilesError) as error:
            refuse(kept, error)
            raise


def refuse(kept: Path, error: GraphError | ModelFilesError) -> None:
    """Record the error, so that all later workers of this server raise it without trying."""
    record = {"server": _server(), "is_model": isinstance(error, ModelFilesError), "reason": str(error)}
    try:
        whole_files.write(_record(kept), json.dumps(record))
    except OSError:
        return  # the other workers can't write the folder either, and get the same error


def _is_usable(kept: Path, openvino: str) -> bool:
    try:
        return not fault_of(kept, read_manifest(kept), openvino)
    except GraphError:
        return False


def _check_refusal(kept: Path) -> None:
    try:
        record = json.loads(_record(kept).read_text("utf-8"))
        server, is_model, reason = (record[name] for name in ("server", "is_model", "reason"))
    except (OSError, ValueError, TypeError, KeyError):
        return
    if server == _server():  # another server's: this container may have more memory
        raise (ModelFilesError if is_model else GraphError)(reason)


def _check_disk_and_memory(folder: Path, model: Path, free: int) -> None:
    """Raise GraphError if the folder can't be written, or memory is too small for the conversion."""
    if not os.access(folder, os.W_OK):
        raise _unwritable(folder, "it can't be written")
    weights = sum(path.stat().st_size for path in source_files(model) if path.suffix in (".safetensors", ".bin"))
    needed = _BASE_BYTES + _COPIES * weights
    if needed > free:
        raise GraphError(
            f"no graph for OpenVINO was made of {model}: that takes about {needed // 10**6} MB of memory, and "
            f"{free // 10**6} MB are free. Give the container more memory, or put the graph into model.tar.gz: a "
            "training job makes it, and so does `build.py quantize`"
        )


def _unwritable(folder: Path, reason: str) -> GraphError:
    return GraphError(
        f"no graph for OpenVINO can be kept in {folder} ({reason}): set BERTH_GRAPH_DIR to a folder that can be written"
    )


def _record(kept: Path) -> Path:
    return kept.with_name(f"{kept.name}.refused")


def _server() -> str:
    """The process that started this one, and when it began: the same for all workers of one server."""
    parent = os.getppid()
    fields = read_text(Path(f"/proc/{parent}/stat")).rpartition(")")[2].split()
    return f"{parent} {fields[19]}" if fields else str(parent)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make `folder` and hold the lock on conversions; GraphError if that fails."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            locks = _LOCKS if os.access(_LOCKS, os.W_OK) else folder
            stack.enter_context(whole_files.locked(locks / _LOCK))
        except OSError as error:
            raise _unwritable(folder, error.strerror or str(error)) from error
        yield
