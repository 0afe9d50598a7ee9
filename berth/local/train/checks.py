"""Checks that a container would make after seconds, made before one starts, with the same error sentences."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from docker import DockerClient

from berth.common.containers import CommandFailed, run_once
from berth.common.engine import find_image
from berth.common.errors import UserError, refuse
from berth.common.kept import Kept, answer_key
from berth.contract.deprecated import DEPRECATED_NAMES
from berth.contract.hyperparameters import FALSE_WORDS, HyperparameterError, Option, parse, unquote
from berth.contract.launch_options import read_launch_options
from berth.contract.own_program import find_program, run_qa_error
from berth.contract.schema import SchemaError, read_schema
from berth.contract.splits import SPLITS, check_names
from berth.contract.words import counted
from berth.images.local_image import LocalImage
from berth.images.pins import pins
from berth.qa import files
from berth.qa.faults import DataError

_SCHEMAS = pins.CACHE / "hyperparameters"
_MOST_SCHEMAS = 50
# Megabytes of one host before it has read any data. Measured: 38 MB with 40 hosts of a program that sleeps; 396 MB with
# 2 hosts of run_qa on a MiniLM-L6.
OWN_PROGRAM_MB = 40.0
RUN_QA_MB = 400.0
_PRINT_SCHEMA = ("python", "-P", "-m", "berth.train.run_qa.schema")


def check_launch_options(hyperparameters: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """UserError for an invalid distribution, and for unknown variables BERTH_*."""
    refuse(read_launch_options(hyperparameters, find_program(hyperparameters, environment), environment).problems)


def check_data(channels: Mapping[str, Path], hyperparameters: Mapping[str, str]) -> None:
    """UserError, with the user's own path, for channels that run_qa will read and that have no data file."""
    for split, source in SPLITS.items():
        task = unquote(hyperparameters.get(source.task, str(source.by_default)))
        is_read = task.strip().lower() not in FALSE_WORDS
        name = next((name for name in source.channels if name in channels), None)
        if name is not None and is_read and f"{split}_file" not in hyperparameters:
            try:
                data = files.find(channels[name]).data
            except DataError as error:
                raise UserError(str(error)) from None
            if channels[name].is_dir() and (refusal := check_names(split, channels[name], data).refusal):
                raise UserError(refusal)


def check_run_qa(image: LocalImage) -> None:
    """UserError if run_qa does not support the image's transformers. A user's own image is not checked, because its
    labels may not match its content.
    """
    pinned = {} if image.derived else image.labels
    cuda = pinned.get("berth.cuda", "")
    if refusal := run_qa_error(pinned.get("berth.transformers", ""), "" if cuda == pins.NONE else cuda):
        raise UserError(refusal)


def check_hyperparameters(client: DockerClient, image: str, hyperparameters: Mapping[str, str]) -> None:
    """UserError for hyperparameters that the image's run_qa does not know, by the list that the image prints."""
    options = known_hyperparameters(client, image)
    if options is None:
        return
    try:
        parse(hyperparameters, options, DEPRECATED_NAMES)
    except HyperparameterError as error:
        raise UserError(str(error)) from None


def known_hyperparameters(client: DockerClient, image: str) -> dict[str, Option] | None:
    """The hyperparameters of an image, read once and cached; None for an older image, which can't list them."""
    kept, key = Kept(_SCHEMAS, _MOST_SCHEMAS), answer_key(find_image(client, image).id)
    with suppress(SchemaError):
        return read_schema(str(kept.load(key)))
    try:
        text = run_once(client, image, _PRINT_SCHEMA).decode()
        options = read_schema(text)
    except (CommandFailed, SchemaError, UnicodeDecodeError):
        return None
    kept.store(key, text)
    return options


def check_memory(hosts: int, processes: int, mb_each: float, available_mb: float) -> None:
    """UserError if the hosts' processes don't fit into this machine's memory; mb_each: the least that one needs."""
    count = hosts * processes
    if count > 1 and count * mb_each > available_mb:
        most = max(1, int(available_mb / mb_each))
        what, advice = counted(hosts, "host"), f"ask for {most} or fewer with --hosts"
        if processes > 1:
            what += f" with {processes} processes each"
            advice = f"ask for {most} or fewer in all, with --hosts and BERTH_PROCESSES_PER_HOST"
        need = "need" if hosts > 1 else "needs"
        raise UserError(
            f"{what} {need} about {count * mb_each / 1000:.0f} GB of memory at the least ({mb_each:.0f} MB each), and "
            f"this machine has {available_mb / 1000:.1f} GB free: {advice}."
        )


def processes_per_host(hyperparameters: Mapping[str, str], environment: Mapping[str, str]) -> int:
    """The processes per host that the job sets; 1 if it does not."""
    return read_launch_options(hyperparameters, find_program(hyperparameters, environment), environment).processes or 1


def available_mb(engines_mb: float) -> float:
    """Megabytes that are free on this machine, but not more than the engine's machine has."""
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return min(engines_mb, int(fields["MemAvailable"].split()[0]) * 1024 / 1e6)
    except (OSError, KeyError, ValueError):
        return engines_mb
