"""Sentences of the launch plan: why it is as it is, and what a user may not expect of it. Pure."""

from collections.abc import Mapping, Sequence

_ENDPOINT_VARIABLES = ("HF_MODEL_ID", "HF_TASK")
_CODE_ARTIFACT = "CA_REPOSITORY_ARN"


def without_effect(environ: Mapping[str, str]) -> list[str]:
    """What well-known notebooks set for an endpoint, and by the same habit for a training; and what AWS's own images
    read that would need a client of AWS in the image (sagemaker-training 5.1.4, modules.py: CodeArtifact).
    """
    lines = []
    if names := [name for name in _ENDPOINT_VARIABLES if environ.get(name)]:
        lines.append(
            f"{' and '.join(names)} {'have' if len(names) > 1 else 'has'} no effect in a training job: name the model "
            "by the hyperparameter model_name_or_path"
        )
    if environ.get(_CODE_ARTIFACT):
        lines.append(
            f"{_CODE_ARTIFACT} has no effect: give pip the repository's address, with its token, by PIP_INDEX_URL"
        )
    return lines


def no_interface(settings: Mapping[str, str], backend: str) -> list[str]:
    """NCCL takes `^docker0` for all interfaces but that one; gloo takes it for a name, and torch's error says no more
    than that the interface has no address.
    """
    name, value = "GLOO_SOCKET_IFNAME", settings.get("GLOO_SOCKET_IFNAME", "")
    if backend != "gloo" or not value.startswith("^"):
        return []
    return [f"{name} is {value}, but gloo takes names of interfaces only, such as eth0: its process group can't form"]


def divided(channels: Sequence[str]) -> str:
    """run_qa trains each host on its own part; how the user's program reads a channel nobody here can know."""
    return (
        f"each host has other files of {', '.join(channels)} (ShardedByS3Key): a program that shares one data set "
        "among all ranks, as Trainer and DistributedSampler do, trains on some of it twice and on some never, or "
        "waits for ever; make it FullyReplicated, or share each host's files among its own ranks, in equal steps"
    )


def little_shm(size: int, nccl_ranks: int) -> str:
    """NCCL takes a file of 9.6 MiB in /dev/shm for each connection between GPUs that can't reach each other's memory,
    and 64 MiB, Docker's default, are full with four of them (github.com/NVIDIA/nccl/issues/290 and 525). With NVLink it
    takes little: so a reason, and no error.
    """
    nccl = (
        f"NCCL joins {nccl_ranks} GPUs through it, with about 10 MiB for each connection that is not NVLink, and"
        if nccl_ranks > 1
        else "data loader workers or NCCL"
    )
    return (
        f"/dev/shm has only {size >> 20} MiB: {nccl} may die of a bus error; keep dataloader_num_workers at 0, or give "
        "the container more (docker run --shm-size, or shm_size in the local session's container_config)"
    )


def apart(hosts: int) -> str:
    """SageMaker makes one archive of every host's /opt/ml/model and asks that names do not clash (docs.aws.amazon.com,
    "How Amazon SageMaker AI Processes Training Output"); build.py keeps the first host's file.
    """
    return (
        "your own program runs once per host unless a distribution is asked for: "
        f"{hosts} independent trainings, whose /opt/ml/model all go into one model.tar.gz: of files of one name only "
        "one stays, so save the model on one host (the first of SM_HOSTS); or set BERTH_DISTRIBUTION to mpi for one "
        "training on all"
    )


def processes(count: int) -> str:
    return f"{count} process{'es' if count > 1 else ''} per host"
