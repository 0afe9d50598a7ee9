"""Makes the graph that a model lacks, once for all workers of a server.

    FOLDER/<digest>/            the graph, under a digest of the model's files and OpenVINO's version
    FOLDER/<digest>.refused     why this server's workers do without

The first worker that comes decides under a lock, the others do as it did: all of a server's workers run one engine.
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
from berth.runtime.memory import available_memory

_LOCKS = Path("/tmp")
_LOCK = "berth-conversion.lock"
"""One in a container, not one in each model's TMPDIR: two conversions at once would each count on the same memory."""
_BASE_BYTES, _COPIES = 400_000_000, 2
"""A conversion takes so many bytes, and those of the weights so often: peaks of 516, 683 and 1,374 MB with libraries
were measured for weights of 0, 90 and 435 MB."""


def kept_folder(folder: Path, hashes: Mapping[str, str], openvino: str) -> Path:
    """Where below `folder` the graph of a model is kept, so that no other model takes it. `hashes`: see
    `graph.hash_sources`.
    """
    named = json.dumps([openvino, sorted(hashes.items())])
    return folder / hashlib.sha256(named.encode()).hexdigest()[:16]


def make_graph_once(
    model: Path, kept: Path, openvino: str, say: Callable[[str], None], available: Callable[[], int] = available_memory
) -> None:
    """Have the model's graph in the folder `kept`: made by the first worker that comes, while others wait.

    GraphError or ModelFilesError if it can't be made, the same for all workers of this server. `available` says how
    many bytes of memory are free.
    """
    if _is_there(kept, openvino):
        return
    with _locked(kept.parent):
        if _is_there(kept, openvino):
            return
        _check_refusal(kept)
        try:
            _check_room(kept.parent, model, available())
            say(f"{model} has no graph for OpenVINO: making one takes some seconds, at each start of a container")
            graph.make(model, kept)
        except (GraphError, ModelFilesError) as error:
            refuse(kept, error)
            raise


def refuse(kept: Path, error: GraphError | ModelFilesError) -> None:
    """Let every worker of this server that comes later raise the same error, and try nothing."""
    record = {"server": _server(), "is_model": isinstance(error, ModelFilesError), "reason": str(error)}
    try:
        whole_files.write(_record(kept), json.dumps(record))
    except OSError:
        return  # the others find the folder as it is here, and come to the same end


def _is_there(kept: Path, openvino: str) -> bool:
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
    if server == _server():  # the next start may have more memory
        raise (ModelFilesError if is_model else GraphError)(reason)


def _check_room(folder: Path, model: Path, free: int) -> None:
    """Raise GraphError if the graph can't be written, or the kernel would kill its conversion."""
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
    try:
        fields = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return str(parent)
    return f"{parent} {fields[19]}"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock on conversions, with `folder` made; GraphError if that can't be."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            locks = _LOCKS if os.access(_LOCKS, os.W_OK) else folder
            stack.enter_context(whole_files.locked(locks / _LOCK))
        except OSError as error:
            raise _unwritable(folder, error.strerror or str(error)) from error
        yield
