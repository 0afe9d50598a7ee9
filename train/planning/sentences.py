"""Sentences of the launch plan: reasons, and warnings about settings and data. Pure."""

from collections.abc import Mapping, Sequence

_ENDPOINT_VARIABLES = ("HF_MODEL_ID", "HF_TASK")
_CODE_ARTIFACT = "CA_REPOSITORY_ARN"


def ineffective_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that have no effect in a training job.

    Well-known notebooks set HF_MODEL_ID and HF_TASK for endpoints, and often for training jobs too. AWS's images read
    CA_REPOSITORY_ARN (CodeArtifact; sagemaker-training 5.1.4, modules.py), which would need an AWS client in the image.
    """
    lines = []
    if names := [name for name in _ENDPOINT_VARIABLES if environ.get(name)]:
        lines.append(
            f"{' and '.join(names)} {'have' if len(names) > 1 else 'has'} no effect in a training job: name the model "
            "with the hyperparameter model_name_or_path"
        )
    if environ.get(_CODE_ARTIFACT):
        lines.append(f"{_CODE_ARTIFACT} has no effect: set PIP_INDEX_URL to the repository's address, with its token")
    return lines


def gloo_interface_warning(settings: Mapping[str, str], backend: str) -> list[str]:
    """Warns about a GLOO_SOCKET_IFNAME such as `^docker0`. For NCCL this means all interfaces except docker0, but gloo
    takes it as a name. torch's error says only that the interface has no address.
    """
    name, value = "GLOO_SOCKET_IFNAME", settings.get("GLOO_SOCKET_IFNAME", "")
    if backend != "gloo" or not value.startswith("^"):
        return []
    return [f"{name} is {value}, but gloo accepts only names of interfaces, such as eth0: its process group can't form"]


def divided_channels_warning(channels: Sequence[str]) -> str:
    """Warns a user's program about channels that are divided among the hosts. run_qa refuses them itself."""
    return (
        f"the files of {', '.join(channels)} are divided among the hosts (ShardedByS3Key), but Trainer and "
        "DistributedSampler expect the same files on every host: some examples would be used twice or never, or the "
        "job would hang; use FullyReplicated, or divide each host's files among its own ranks, with the same number "
        "of steps on every rank"
    )


def small_shm_warning(size: int, nccl_ranks: int) -> str:
    """Warns about a small /dev/shm of `size` bytes. `nccl_ranks`: ranks on this host that use NCCL; 1 for gloo.

    For each connection between GPUs without peer access, NCCL creates a file of 9.6 MiB in /dev/shm. Docker's default
    of 64 MiB is full with four GPUs (github.com/NVIDIA/nccl/issues/290 and 525). With NVLink, NCCL needs little space,
    so this is not an error.
    """
    cause = (
        f"NCCL needs about 10 MiB of it for each connection without NVLink between the {nccl_ranks} GPUs"
        if nccl_ranks > 1
        else "data loader workers and NCCL use it"
    )
    return (
        f"/dev/shm has only {size >> 20} MiB: {cause}, and the program crashes with a bus error if it is full; "
        "give the container more (docker run --shm-size, or shm_size in the local "
        "session's container_config), or set dataloader_num_workers to 0"
    )


def independent_trainings(hosts: int) -> str:
    """Warns that the hosts do not train together.

    SageMaker puts every host's /opt/ml/model into one archive and requires distinct names (docs.aws.amazon.com, "How
    Amazon SageMaker AI Processes Training Output"). In a local job, if several hosts write a file of the same name,
    build.py packs the first host's.
    """
    return (
        "your own program runs once per host unless a distribution is asked for: "
        f"{hosts} independent trainings, whose /opt/ml/model all go into one model.tar.gz: if several hosts write a "
        "file of the same name, only one is kept, so save the model on one host (the first of SM_HOSTS); or set "
        "BERTH_DISTRIBUTION to mpi for one training on all"
    )


def processes(count: int) -> str:
    return f"{count} process{'es' if count > 1 else ''} per host"
