"""/opt/ml of a training container in SageMaker's layout: one folder per host, whose subfolders are mounted.

input/config/   hyperparameters.json, resourceconfig.json, inputdataconfig.json
input/data/     one folder per channel (mounted from the user's own folder, read-only)
model/          becomes model.tar.gz
output/         failure (the reason, as text) and data/ (becomes output.tar.gz)
checkpoints/    synced while the job runs
code/           the user's program, with --code; otherwise the image's own /opt/ml/code stays visible
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.common.errors import UserError
from berth.contract.splits import SPLITS
from berth.local.links import check_links, copy_folder
from berth.local.paths import refuse_address

ROOT = "/opt/ml"
CHANNELS_AT = f"{ROOT}/input/data"
NETWORK_INTERFACE = "eth0"
MODEL_CHANNEL = "model"
MODEL_HYPERPARAMETER = "model_name_or_path"

_KNOWN_CHANNELS = frozenset(name for split in SPLITS.values() for name in split.channels)
_GROUP = "homogeneousCluster"


@dataclass(frozen=True, slots=True)
class HostConfig:
    """The content of one host's /opt/ml: its own name, all hosts' names, and the job.

    channels: name → path on this machine; code: the folder of the user's program.
    """

    host: str
    hosts: Sequence[str]
    instance_type: str
    hyperparameters: Mapping[str, str]
    channels: Mapping[str, Path]
    code: Path | None = None


def host_names(count: int) -> list[str]:
    """The hosts' names, sorted as text like SageMaker's: algo-10 comes before algo-2. The first is the leader."""
    if count < 1:
        raise UserError(f"--hosts is {count} and must be at least 1.")
    return sorted(f"algo-{number}" for number in range(1, count + 1))


def find_channels(data: Path) -> dict[str, Path]:
    """The channels in a file or folder, by name.

    If a folder has a subfolder with the name of a channel of run_qa, such as `train` or `validation`, each subfolder is
    a channel. Any other folder, and a file, is the channel `train`.
    """
    refuse_address(data)
    if not data.exists():
        raise UserError(
            f"there is no file or folder {data}: pass a data file, or a folder, optionally with train/ and validation/ "
            "in it."
        )
    channels = _channel_folders(data) or {"train": data}
    check_channels(channels)
    return channels


def files_beside_channels(data: Path) -> list[str]:
    """The names of files next to the channels in a folder: they are in no channel."""
    if not _channel_folders(data):
        return []
    return sorted(each.name for each in data.iterdir() if each.is_file() and not _hidden(each))


def _channel_folders(data: Path) -> dict[str, Path]:
    entries = [] if data.is_file() else sorted(each for each in data.iterdir() if not _hidden(each))
    # A dangling link may be a channel; `check_channels` reports it.
    channels = {each.name: each for each in entries if each.is_dir() or (each.is_symlink() and not each.exists())}
    return channels if channels.keys() & _KNOWN_CHANNELS else {}


def check_channels(channels: Mapping[str, Path]) -> None:
    """UserError for channels without a file, and for dangling links."""
    if not channels:
        raise UserError("there is no data: pass at least one channel.")
    for name, path in channels.items():
        if path.is_symlink() and not path.exists():
            raise UserError(f"the channel {name} is a link to {os.readlink(path)}, which does not exist: {path}.")
        if not path.exists():
            raise UserError(f"there is no file or folder {path}, which should be the channel {name}.")
        check_links(path, f"the channel {name}")
        if not any(True for _ in channel_files(path)):
            raise UserError(f"The channel {name} is empty: put a data file into {path}.")


def channel_files(path: Path) -> list[Path]:
    """The files of a channel, without hidden ones; the channel may be a single file."""
    if path.is_file():
        return [path]
    found = (Path(folder) / name for folder, _, names in os.walk(path, followlinks=True) for name in names)
    return sorted(each for each in found if not any(_hidden(part) for part in map(Path, each.relative_to(path).parts)))


def channel_mounts(channels: Mapping[str, Path]) -> dict[str, Path]:
    """The channels' mounts: path in the container → path on this machine. A file goes into its channel's folder."""
    return {
        f"{CHANNELS_AT}/{name}/{path.name}" if path.is_file() else f"{CHANNELS_AT}/{name}": path.absolute()
        for name, path in channels.items()
    }


def add_paths(hyperparameters: Mapping[str, str], *, qa_model: bool, has_code: bool) -> dict[str, str]:
    """The hyperparameters, plus the paths of the user's code and of the model channel unless they are set.

    qa_model: whether run_qa gets a model, whose path SageMaker does not pass.
    """
    complete = dict(hyperparameters)
    if qa_model:
        complete.setdefault(MODEL_HYPERPARAMETER, f"{CHANNELS_AT}/{MODEL_CHANNEL}")
    if has_code:
        complete.setdefault("sagemaker_submit_directory", f"{ROOT}/code")
    return complete


def _config_files(config: HostConfig) -> dict[str, dict[str, Any]]:
    """The JSON files of input/config by name, in SageMaker's fields; sorted, so that the same job has the same texts.

    All hosts are one instance group. Each channel is in File mode and complete on every host.
    """
    hosts, kind = list(config.hosts), config.instance_type
    channel = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
    return {
        "hyperparameters": {name: str(value) for name, value in sorted(config.hyperparameters.items())},
        "resourceconfig": {
            "current_host": config.host,
            "current_instance_type": kind,
            "current_group_name": _GROUP,
            "hosts": hosts,
            "instance_groups": [{"instance_group_name": _GROUP, "instance_type": kind, "hosts": hosts}],
            "network_interface_name": NETWORK_INTERFACE,
        },
        "inputdataconfig": dict.fromkeys(sorted(config.channels), channel),
    }


def host_mounts(root: Path, *, has_code: bool) -> dict[str, Path]:
    """The mounts of one host's /opt/ml at `root`: path in the container → path on this machine.

    Not /opt/ml as a whole: the image's /opt/ml/code stays visible, as with SageMaker and its SDK's local mode.
    """
    folders = ("input", "model", "output", "checkpoints", *(["code"] if has_code else []))
    return {f"{ROOT}/{name}": root / name for name in folders}


def create_host_folder(root: Path, config: HostConfig) -> None:
    """Creates one host's /opt/ml at `root`, with an empty file or folder as mount point for each channel."""
    for folder in ("input/config", "input/data", "model", "output/data", "checkpoints", "code"):
        (root / folder).mkdir(parents=True)
    for name, document in _config_files(config).items():
        (root / f"input/config/{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    for target, source in channel_mounts(config.channels).items():
        mount_point = root / Path(target).relative_to(ROOT)
        if source.is_file():
            mount_point.parent.mkdir(parents=True, exist_ok=True)
            mount_point.touch()
        else:
            mount_point.mkdir(parents=True)
    if (code := config.code) is not None:
        copy_folder(code, root / "code", "__pycache__", ".git")


def _hidden(path: Path) -> bool:
    return path.name.startswith(".")
