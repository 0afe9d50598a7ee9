"""Replaces a container's paths in a sentence by the user's paths on this machine."""

import re
from collections.abc import Mapping

from berth.local import opt_ml
from berth.local.train.job import TrainingJob


def with_own_paths(text: str, job: TrainingJob) -> str:
    """The text with the user's paths in place of the container's, for the job's channels, code and checkpoints."""
    known = _paths(job)
    if not known:
        return text
    # Longest first, so that a channel's file is matched before its folder.
    names = "|".join(re.escape(path) for path in sorted(known, key=len, reverse=True))
    # The path in a variable of the job stays the container's.
    return re.sub(rf"(?<!PYTHONPATH to )(?<![\w./-])({names})(?![\w-])", lambda found: known[found[1]], text)


def _paths(job: TrainingJob) -> Mapping[str, str]:
    paths = {}
    for name, path in job.channels.items():
        folder = f"{opt_ml.CHANNELS_AT}/{name}"
        paths[folder] = str(path.parent if path.is_file() else path)
        if path.is_file():
            paths[f"{folder}/{path.name}"] = str(path)
    for target, source in (
        (f"{opt_ml.CHANNELS_AT}/{opt_ml.MODEL_CHANNEL}", job.model),
        (f"{opt_ml.ROOT}/code", job.code),
    ):
        if source is not None:
            paths[target] = str(source)
    if job.checkpoints is not None:
        paths[f"{opt_ml.ROOT}/checkpoints"] = str(job.checkpoints)
    return paths
