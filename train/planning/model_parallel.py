"""What the launch plan checks and explains for a job that requests SageMaker's model parallel library. Pure."""

from berth.contract.launch_options import MP_PARAMETERS, SMDISTRIBUTED, LaunchOptions
from berth.contract.words import counted
from berth.smdistributed.modelparallel import parameters
from berth.train.startup.smdistributed_finder import OFF, OPEN, WITHOUT

_BROKEN_SINCE = 5
"""The first major version of transformers whose Trainer needs berth's patches to use the library."""


def problems(options: LaunchOptions, ranks: int | None) -> list[str]:
    """Everything that is wrong with the options. `ranks`: of the whole job, None if other problems leave it unknown."""
    sentences = []
    if options.model_parallel and options.smdistributed == OFF:
        sentences.append(
            f"{MP_PARAMETERS} asks for the model parallel library, but {SMDISTRIBUTED} is off, which disables it; "
            "remove one of the two."
        )
    try:
        if options.model_parallel:
            parameters.parse(options.model_parallel, ranks)
    except parameters.ParameterError as error:
        sentences += [f"{MP_PARAMETERS}: {problem}" for problem in error.problems]
    return sentences


def reasons(options: LaunchOptions, ranks: int, transformers: str) -> list[str]:
    """How the model is split, and which options have no effect. `transformers`: its version in the image."""
    if not options.model_parallel:
        return []
    parsed = parameters.parse(options.model_parallel, ranks)
    degree, tensor = parsed.pipeline_parallel_degree, parsed.tensor_parallel_degree
    split = f" on {tensor} tensor parallel ranks each" if tensor > 1 else ""
    lines = [
        f"model parallel: {counted(degree, 'partition')} of the model{split}, "
        f"{counted(ranks // (degree * tensor), 'replica')}, "
        f"{parsed.microbatches} microbatch{'es' if parsed.microbatches > 1 else ''}, {parsed.pipeline}, "
        f"{parsed.placement_strategy}; by {_library(options.smdistributed)}"
    ]
    if _since_5(transformers) and options.smdistributed != OPEN:
        lines.append(
            f"transformers' Trainer, version {transformers}, ignores the partitions and trains data-parallel unless "
            f"{SMDISTRIBUTED} is open; a script that calls the library itself uses them"
        )
    elif "partitions" not in options.model_parallel:
        lines.append(
            "transformers' Trainer reads the option partitions only, and trains data-parallel without it: if the "
            "script uses Trainer, give partitions instead of pipeline_parallel_degree"
        )
    return [*lines, *(remark.removesuffix(".") for remark in parsed.remarks)]


def taken_as_argument(transformers: str) -> bool:
    """Whether scripts accept `--mp_parameters`, which AWS's images pass; transformers 5's argument parser does not.

    transformers: its version in the image, empty if it is missing or was not looked up.
    """
    return bool(transformers) and not _since_5(transformers)


def _since_5(transformers: str) -> bool:
    major = transformers.partition(".")[0]
    return major.isdigit() and int(major) >= _BROKEN_SINCE


def _library(chosen: str) -> str:
    if chosen in WITHOUT:
        return f"AWS's library if it is in the image, because {SMDISTRIBUTED} is {chosen}"
    ours = "the kit's open implementation, not AWS's library"
    return ours if chosen == OPEN else f"{ours}, if AWS's is not in the image"
