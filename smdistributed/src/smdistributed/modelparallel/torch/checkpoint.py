"""save, load, save_checkpoint and resume_from_checkpoint.

A partial checkpoint is a folder with files per rank of a replica; it resumes only with the same degrees. A full one is
a plain state dict of the whole model, which any program can load, with a file for the optimizer next to it.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

import functools
import json
import os
import pickle
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import torch

from . import files
from .groups import (
    exchanged,
    group_ranks,
    mp_rank,
    pp_rank,
    rank,
    rdp_rank,
    rdp_size,
    tp_rank,
    tp_size,
)
from .model import DistributedModel
from .optimizer import DistributedOptimizer, states_group
from .state import state

_NEWEST = "newest"
_MANIFEST = "manifest.json"
_USER_CONTENT = "user_content.pt"
_REPLICAS = "number of replicas"
_Result = TypeVar("_Result")


class SMPCheckpointError(RuntimeError):
    """A checkpoint can't be written or resumed from."""


def save(
    obj: Any,
    f: str | os.PathLike[str],
    partial: bool = True,  # noqa: FBT001, FBT002
    pickle_module: Any = pickle,
    pickle_protocol: int = 2,
    v3: bool = False,  # noqa: FBT001, FBT002
    **_: Any,
) -> None:
    """torch.save; with `partial` to this rank's file.

    Its name ends with the mp_rank, or with the pp_rank and tp_rank if there is tensor parallelism. v3: with all three,
    pp_rank, tp_rank and rdp_rank, for states of which each replica has a part.
    """
    path = Path(f"{os.fspath(f)}{_suffix(v3=v3)}" if partial else f)
    files.write(obj, path, pickle_module=pickle_module, pickle_protocol=pickle_protocol)


def load(
    f: str | os.PathLike[str],
    map_location: Any = "cpu",
    pickle_module: Any = pickle,
    partial: bool = True,  # noqa: FBT001, FBT002
    **pickle_load_args: Any,
) -> Any:
    """Load what `save` wrote; with `partial` this rank's file. SMPCheckpointError if the file is missing."""
    forms = [True, False] if state.parameters.states_sharded else [False, True]
    paths = [Path(f"{os.fspath(f)}{_suffix(v3=each)}" if partial else f) for each in forms]
    path = next((each for each in paths if each.is_file()), paths[0])
    if not path.is_file():
        other = "full" if partial else "partial"
        raise SMPCheckpointError(
            f"{path} does not exist; check the path, whether it was saved as a {other} one, and whether the job that "
            "saved it had as many partitions."
        )
    return torch.load(path, map_location, pickle_module, weights_only=False, **pickle_load_args)


def _suffix(*, v3: bool) -> str:
    """The end of the name of this rank's file."""
    if v3:
        return f"_{pp_rank()}_{tp_rank()}_{rdp_rank()}"
    return f"_{pp_rank()}_{tp_rank()}" if tp_size() > 1 else f"_{mp_rank()}"


def save_checkpoint(
    path: str | os.PathLike[str],
    tag: str,
    partial: bool = True,  # noqa: FBT001, FBT002
    model: DistributedModel | None = None,
    optimizer: DistributedOptimizer | None = None,
    user_content: Any = None,
    **more: Any,
) -> None:
    """Save model, optimizer and user content atomically.

    All ranks call it, or at least those of rdp_rank 0 if no part of the state is sharded over replicas.

    more: num_kept_partial_checkpoints, how many partial checkpoints to keep. Other keywords have no effect.

    Raises SMPCheckpointError on all these ranks if one can't write.
    """
    num_kept = more.get("num_kept_partial_checkpoints")
    if num_kept is not None and num_kept < 1:
        raise ValueError(f"num_kept_partial_checkpoints is {num_kept}; keep at least 1.")
    for argument, kind in ((model, DistributedModel), (optimizer, DistributedOptimizer)):
        if argument is not None and not isinstance(argument, kind):
            raise TypeError(
                f"smp.save_checkpoint can't save a {type(argument).__name__}; wrap it with smp.{kind.__name__} first."
            )
    if rdp_rank() != 0 and not state.parameters.states_sharded:
        return
    parts = {kind: each for kind, each in (("model", model), ("optimizer", optimizer)) if each is not None}
    if partial:
        _save_partial(Path(path), str(tag), parts, user_content, num_kept)
    else:
        _save_full(Path(path), str(tag), parts, user_content)


def _save_partial(folder: Path, tag: str, parts: Mapping[str, Any], user_content: Any, num_kept: int | None) -> None:
    place, unfinished = folder / f"{tag}_partial", folder / f".{tag}_partial.incomplete"
    hosts = _hosts()
    first_on_host = hosts.index(socket.gethostname()) == _place()

    def clear() -> None:
        if first_on_host:
            files.remove(unfinished)

    def write() -> None:
        for kind, each in parts.items():
            if rdp_rank() < _copies_of(kind):
                files.write(each.local_state_dict(), unfinished / _rankinfo(kind))
        if first_on_host:
            files.write(user_content, unfinished / _USER_CONTENT)
            files.write_text(json.dumps({"degrees": _degrees(), "parts": list(parts)}), unfinished / _MANIFEST)

    def publish(host: str) -> None:
        if first_on_host and host == socket.gethostname():
            files.put_in_place(unfinished, place)
            files.write_text(tag, folder / _NEWEST)
            if num_kept:
                files.keep_newest(folder, "_partial", num_kept)

    _on_all(clear, place, _SAVE)
    _on_all(write, place, _SAVE)
    for host in dict.fromkeys(hosts):  # one after the other, because they may share the folder
        _on_all(functools.partial(publish, host), place, _SAVE)


def _save_full(folder: Path, tag: str, parts: Mapping[str, Any], user_content: Any) -> None:
    hosts = _hosts()
    writers = [hosts.index(host) for host in dict.fromkeys(hosts)]  # the others need no memory for the whole
    first_on_host = _place() in writers
    whole = {kind: each.gathered_state(states_group(), writers) for kind, each in parts.items()}

    def write() -> None:
        if not first_on_host:
            return
        # The model comes last: if the new model exists, so do the other files.
        together = {folder / f"optimizer_{tag}": whole["optimizer"]} if "optimizer" in whole else {}
        together |= {folder / f"user_content_{tag}": user_content}
        together |= {folder / tag: whole["model"]} if "model" in whole else {}
        files.write_all(together)
        files.write_text(tag, folder / _NEWEST)

    _on_all(write, folder / tag, _SAVE)


def _degrees() -> dict[str, int]:
    """What must be the same when a partial checkpoint is resumed from."""
    names = ("pipeline_parallel_degree", "tensor_parallel_degree", "sharded_data_parallel_degree")
    degrees = {name: getattr(state.parameters, name) for name in names}
    return {**degrees, _REPLICAS: rdp_size() if state.parameters.shard_optimizer_state else 1}


def _copies_of(kind: str) -> int:
    """The number of replicas over which a part of the state is sharded."""
    if kind == "optimizer" and state.parameters.shard_optimizer_state:
        return rdp_size()
    return state.parameters.sharded_data_parallel_degree


def _rankinfo(kind: str) -> str:
    """The name of this rank's file."""
    copies = _copies_of(kind)
    shard = f"_{rdp_rank() % copies}" if copies > 1 else ""
    return f"{kind}_{pp_rank()}_{tp_rank()}{shard}.pt"


def _place() -> int:
    """This rank's place in the group that has the whole state."""
    return group_ranks(states_group()).index(rank())


class _Call(NamedTuple):
    """A collective call, and the error after the path if a rank fails in it."""

    name: str
    failure: str


_SAVE = _Call("smp.save_checkpoint", "could not be written on rank {}: {}; fix this and save again.")
_RESUME = _Call("smp.resume_from_checkpoint", "could not be read from on rank {}: {}; take another checkpoint.")


def _hosts() -> list[str]:
    """The host of each rank that holds a part of the state."""
    return exchanged(socket.gethostname(), states_group(), _SAVE.name)


def _on_all(work: Callable[[], _Result], place: Path, call: _Call) -> _Result:
    """Do the work on every rank of the group; if one fails, all raise, so that none waits for the others."""
    result, sentence = None, ""
    cause: Exception | None = None
    try:
        result = work()
    except SMPCheckpointError as error:
        sentence, cause = str(error), error
    except Exception as error:  # whatever pickle and the file system raise
        sentence, cause = f"{place} {call.failure.format(rank(), f'{type(error).__name__}: {error}')}", error
    if reasons := [each for each in exchanged(sentence, states_group(), call.name) if each]:
        raise SMPCheckpointError(reasons[0]) from cause
    return cast("_Result", result)


def resume_from_checkpoint(
    path: str | os.PathLike[str],
    tag: str | None = None,
    partial: bool = True,  # noqa: FBT001, FBT002
    strict: bool = True,  # noqa: FBT001, FBT002
    load_optimizer: bool = True,  # noqa: FBT001, FBT002
    translate_function: Callable[[Any], Any] | None = None,
    **_: Any,
) -> Any:
    """Load into the wrapped model and optimizer, before the first step or later; returns the user content.

    All ranks call it. tag: None means the newest. SMPCheckpointError on all ranks of the replica if the checkpoint is
    missing or incomplete, if a partial one was saved with other degrees, or if no model or optimizer is wrapped.
    """
    folder = Path(path)
    skipped = () if load_optimizer else ("optimizer",)
    read = functools.partial(_read_partial if partial else _read_full, folder, tag, skipped)
    parts, content = _on_all(read, folder, _RESUME)
    if "model" in parts:
        states = parts["model"]
        state.model.load_state_dict(translate_function(states) if translate_function else states, strict=strict)
    if "optimizer" in parts:
        state.optimizer.load_state_dict(parts["optimizer"])
    return content


def _newest(folder: Path) -> str:
    newest = folder / _NEWEST
    if not newest.is_file():
        raise SMPCheckpointError(
            f"{newest} does not exist, so the newest checkpoint is unknown; give a tag, or check the path."
        )
    return newest.read_text().strip()


def _read_partial(folder: Path, tag: str | None, skipped: Sequence[str]) -> tuple[dict[str, Any], Any]:
    """This rank's parts by kind, and the user's content."""
    place = folder / f"{tag or _newest(folder)}_partial"
    files.recover(place)
    if not place.is_dir():
        raise SMPCheckpointError(f"{place} does not exist; check path and tag, or resume with partial=False.")
    if not (place / _MANIFEST).is_file():
        raise SMPCheckpointError(f"{place} has no {_MANIFEST}, so it was not saved by this library; take another one.")
    manifest = json.loads((place / _MANIFEST).read_text())
    for name, degree in _degrees().items():
        if (saved := manifest["degrees"].get(name, 1)) != degree:
            raise SMPCheckpointError(
                f"{place} was saved with {name} {saved}, and this job has {degree}; set it to {saved}, or save a full "
                "checkpoint (partial=False), which loads with any."
            )
    part_files = {kind: place / _rankinfo(kind) for kind in manifest["parts"] if kind not in skipped}
    _check_targets(part_files, place)
    parts = {kind: torch.load(file, "cpu", weights_only=False) for kind, file in part_files.items()}
    return parts, torch.load(place / _USER_CONTENT, "cpu", weights_only=False)


def _read_full(folder: Path, tag: str | None, skipped: Sequence[str]) -> tuple[dict[str, Any], Any]:
    """The full states by kind, and the user's content; None if the state dict is another program's."""
    tag = tag or _newest(folder)
    if not (folder / tag).is_file():
        raise SMPCheckpointError(f"{folder / tag} does not exist; check path and tag, or resume with partial=True.")
    parts: dict[str, Any] = {"model": folder / tag}
    optimizer_file, content_file = folder / f"optimizer_{tag}", folder / f"user_content_{tag}"
    if optimizer_file.is_file() and "optimizer" not in skipped:
        parts["optimizer"] = optimizer_file
    _check_targets(parts, folder / tag)
    parts["model"] = torch.load(parts["model"], "cpu", weights_only=True)
    if "optimizer" in parts:
        parts["optimizer"] = torch.load(parts["optimizer"], "cpu", weights_only=False)
    return parts, torch.load(content_file, "cpu", weights_only=False) if content_file.is_file() else None


def _check_targets(kinds: Iterable[str], place: Path) -> None:
    """SMPCheckpointError if the script has not wrapped the model or optimizer that the checkpoint needs."""
    for kind in kinds:
        if getattr(state, kind) is None:
            wrapper = f"smp.Distributed{kind.capitalize()}"
            other = ", or resume with load_optimizer=False" if kind == "optimizer" else ""
            raise SMPCheckpointError(
                f"{place} can't be loaded, because the script has no {wrapper} yet; call {wrapper} before{other}."
            )
