"""save, load, save_checkpoint and resume_from_checkpoint.

A partial checkpoint is a folder with a file per rank of a replica, and resumes with the same degrees only; a full one
is a plain state dict of the whole model, which any program can load, with the optimizer's beside it.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

import json
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import files
from .groups import MP_GROUP, allgather, mp_rank, pp_rank, rdp_rank, tp_rank
from .state import state

_NEWEST = "newest"
_DEGREES = "degrees.json"
_USER_CONTENT = "user_content.pt"


class SMPCheckpointError(RuntimeError):
    """A checkpoint can't be written or resumed from."""


def save(
    obj: Any,
    f: str | os.PathLike[str],
    partial: bool = True,  # noqa: FBT001, FBT002
    pickle_module: Any = pickle,
    pickle_protocol: int = 2,
    **_: Any,
) -> None:
    """torch.save; with `partial` to a file of this rank, whose name ends in its mp_rank."""
    path = Path(f"{os.fspath(f)}_{mp_rank()}" if partial else f)
    files.write(obj, path, pickle_module=pickle_module, pickle_protocol=pickle_protocol)


def load(
    f: str | os.PathLike[str],
    map_location: Any = "cpu",
    pickle_module: Any = pickle,
    partial: bool = True,  # noqa: FBT001, FBT002
    **pickle_load_args: Any,
) -> Any:
    """What `save` wrote; with `partial` the file of this rank. SMPCheckpointError if it is not there."""
    path = Path(f"{os.fspath(f)}_{mp_rank()}" if partial else f)
    if not path.is_file():
        other = "full" if partial else "partial"
        raise SMPCheckpointError(f"{path} is not there; check the path, and whether it was saved as a {other} one.")
    return torch.load(path, map_location, pickle_module, weights_only=False, **pickle_load_args)


def _degrees() -> dict[str, int]:
    names = ("pipeline_parallel_degree", "tensor_parallel_degree")
    return {name: getattr(state.parameters, name) for name in names}


def _rankinfo(kind: str) -> str:
    return f"{kind}_{pp_rank()}_{tp_rank()}.pt"


def save_checkpoint(
    path: str | os.PathLike[str],
    tag: str,
    partial: bool = True,  # noqa: FBT001, FBT002
    model: Any = None,
    optimizer: Any = None,
    user_content: Any = None,
    **more: Any,
) -> None:
    """Write model, optimizer and what the user gives, whole or not at all. All ranks call it, or those of dp_rank 0.

    `more`: num_kept_partial_checkpoints, how many partial ones stay; translate_if_full changes nothing.

    Raises SMPCheckpointError on all ranks of the replica if one can't write.
    """
    num_kept_partial_checkpoints = more.get("num_kept_partial_checkpoints")
    if num_kept_partial_checkpoints is not None and num_kept_partial_checkpoints < 1:
        raise ValueError(f"num_kept_partial_checkpoints is {num_kept_partial_checkpoints}; keep at least 1.")
    if rdp_rank() != 0:
        return
    folder, tag = Path(path), str(tag)
    if partial:
        _save_partial(folder, tag, {"model": model, "optimizer": optimizer}, user_content)
        if num_kept_partial_checkpoints and _first_of_host():
            files.keep_newest(folder, "_partial", num_kept_partial_checkpoints)
    else:
        _save_full(folder, tag, {"model": model, "optimizer": optimizer}, user_content)


def _first_of_host() -> bool:
    """Whether this rank is the replica's first on its host, which does what is done once per file system."""
    return allgather(socket.gethostname(), MP_GROUP).index(socket.gethostname()) == mp_rank()


def _save_partial(folder: Path, tag: str, given: dict[str, Any], user_content: Any) -> None:
    place, beside = folder / f"{tag}_partial", folder / f".{tag}_partial.incomplete"
    first = _first_of_host()

    def write() -> None:
        for kind, each in given.items():
            if each is not None:
                files.write(each.local_state_dict(), beside / _rankinfo(kind))
        if given["optimizer"] is not None and state.parameters.fp16:
            files.write(given["optimizer"].loss_scale_state(), beside / _rankinfo("fp16_states"))
        if first:
            files.write(user_content, beside / _USER_CONTENT)
            files.write_text(json.dumps(_degrees()), beside / _DEGREES)

    def publish() -> None:
        if first:
            files.put_in_place(beside, place)
            files.write_text(tag, folder / _NEWEST)

    _all_or_none(write, place)
    _all_or_none(publish, place)


def _save_full(folder: Path, tag: str, given: dict[str, Any], user_content: Any) -> None:
    whole = {kind: each.state_dict() for kind, each in given.items() if each is not None}
    first = _first_of_host()

    def write() -> None:
        if not first:
            return
        if "model" in whole:
            files.write(whole["model"], folder / tag)
        if "optimizer" in whole:
            files.write(whole["optimizer"], folder / f"optimizer_{tag}")
        files.write(user_content, folder / f"user_content_{tag}")
        files.write_text(tag, folder / _NEWEST)

    _all_or_none(write, folder / tag)


def _all_or_none(work: Callable[[], None], place: Path) -> None:
    """Do it on every rank of the replica; if one fails, all raise."""
    try:
        work()
        failed = ""
    except OSError as error:
        failed = f"rank with mp_rank {mp_rank()}: {error}"
    if reasons := [each for each in allgather(failed, MP_GROUP) if each]:
        raise SMPCheckpointError(
            f"The checkpoint {place} could not be written ({reasons[0]}); free space or change the path."
        )


def resume_from_checkpoint(
    path: str | os.PathLike[str],
    tag: str | None = None,
    partial: bool = True,  # noqa: FBT001, FBT002
    strict: bool = True,  # noqa: FBT001, FBT002
    load_optimizer: bool = True,  # noqa: FBT001, FBT002
    translate_function: Callable[[Any], Any] | None = None,
    **_: Any,
) -> Any:
    """Load into the wrapped model and optimizer; returns the user's content. All ranks call it; `tag` None: the newest.

    SMPCheckpointError if it is not there, or if a partial one was saved with other degrees.
    """
    folder = Path(path)
    if tag is None:
        newest = folder / _NEWEST
        if not newest.is_file():
            raise SMPCheckpointError(
                f"{newest} is not there, so no checkpoint is the newest; give a tag, or check the path."
            )
        tag = newest.read_text().strip()
    optimizer = state.optimizer if load_optimizer else None
    if partial:
        return _resume_partial(folder / f"{tag}_partial", optimizer, strict=strict)
    if not (folder / tag).is_file():
        raise SMPCheckpointError(f"{folder / tag} is not there; check path and tag, or resume with partial=True.")
    if state.model is not None:
        whole = torch.load(folder / tag, "cpu", weights_only=True)
        state.model.load_state_dict(translate_function(whole) if translate_function else whole, strict=strict)
    beside = folder / f"optimizer_{tag}"
    if optimizer is not None and beside.is_file():
        optimizer.load_state_dict(torch.load(beside, "cpu", weights_only=False))
    return _content(folder / f"user_content_{tag}")


def _resume_partial(place: Path, optimizer: Any, *, strict: bool) -> Any:
    if not place.is_dir():
        raise SMPCheckpointError(f"{place} is not there; check path and tag, or resume with partial=False.")
    _compare_degrees(place)
    if state.model is not None and (place / _rankinfo("model")).is_file():
        part = torch.load(place / _rankinfo("model"), "cpu", weights_only=True)
        state.model.load_state_dict(part, strict=strict)
    if optimizer is not None and (place / _rankinfo("optimizer")).is_file():
        optimizer.load_state_dict(torch.load(place / _rankinfo("optimizer"), "cpu", weights_only=False))
        scale = place / _rankinfo("fp16_states")
        if scale.is_file():
            optimizer.load_loss_scale_state(torch.load(scale, "cpu", weights_only=True))
    return _content(place / _USER_CONTENT)


def _compare_degrees(place: Path) -> None:
    saved = json.loads((place / _DEGREES).read_text()) if (place / _DEGREES).is_file() else {}
    for name, degree in _degrees().items():
        if saved.get(name, degree) != degree:
            raise SMPCheckpointError(
                f"{place} was saved with {name} {saved[name]}, and this job has {degree}; set it to {saved[name]}, or "
                "save a full checkpoint (partial=False), which loads with any."
            )


def _content(path: Path) -> Any:
    return torch.load(path, "cpu", weights_only=False) if path.is_file() and path.stat().st_size else None
