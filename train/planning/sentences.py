"""Sentences of the launch plan: reasons, and a warning about data. Pure."""

from collections.abc import Sequence


def divided_channels_warning(channels: Sequence[str]) -> str:
    """Warns a user's program about channels that are divided among the hosts. run_qa refuses them itself."""
    return (
        f"the files of {', '.join(channels)} are divided among the hosts (ShardedByS3Key), but Trainer and "
        "DistributedSampler expect the same files on every host: some examples would be used twice or never, or the "
        "job would hang; use FullyReplicated, or divide each host's files among its own ranks, with the same number "
        "of steps on every rank"
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
