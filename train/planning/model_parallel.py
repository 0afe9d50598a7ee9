"""A job that asks for SageMaker's model parallel library, as its launch plan sees it. Pure."""

from berth.contract.launch_options import MP_PARAMETERS, SMDISTRIBUTED, LaunchOptions
from berth.smdistributed.modelparallel import parameters
from berth.train.startup.smdistributed_finder import OFF, OPEN, WITHOUT

_WITHOUT_THE_PATH = 5
"""The first version of transformers whose Trainer can't go the library's path by itself."""


def problems(options: LaunchOptions, ranks: int | None) -> list[str]:
    """All that is wrong with its options; None ranks: their number is not known, for something else is wrong."""
    found = []
    if options.model_parallel and options.smdistributed == OFF:
        found.append(
            f"{MP_PARAMETERS} asks for the model parallel library, and {SMDISTRIBUTED} is off, which leaves it out; "
            "remove one of the two."
        )
    try:
        if options.model_parallel:
            parameters.parse(options.model_parallel, ranks)
    except parameters.ParameterError as error:
        found += [f"{MP_PARAMETERS}: {problem}" for problem in error.problems]
    return found


def reasons(options: LaunchOptions, ranks: int, transformers: str) -> list[str]:
    """What is done of what was asked for, and what changes nothing. `transformers` is the image's version."""
    if not options.model_parallel:
        return []
    asked = parameters.parse(options.model_parallel, ranks)
    degree = asked.pipeline_parallel_degree
    lines = [
        f"model parallel: {degree} partition{'s' if degree > 1 else ''} of the model, {ranks // degree} "
        f"replica{'s' if ranks > degree else ''}, {asked.microbatches} microbatches, {asked.pipeline}, "
        f"{asked.placement_strategy}; by {_whose(options.smdistributed)}"
    ]
    if _since_5(transformers) and options.smdistributed != OPEN:
        lines.append(
            f"a script that trains by transformers' Trainer, of version {transformers}, uses no partitions and trains "
            f"data-parallel, unless {SMDISTRIBUTED} is open; one that calls the library itself uses them"
        )
    elif "partitions" not in options.model_parallel:
        lines.append(
            "transformers' Trainer knows the option as partitions alone, and without it trains data-parallel: give "
            "partitions instead of pipeline_parallel_degree if the script is of Trainer"
        )
    return [*lines, *(remark.removesuffix(".") for remark in asked.remarks)]


def taken_as_argument(transformers: str) -> bool:
    """Whether scripts take `--mp_parameters`, as AWS's images pass it: the argument parser of transformers 5 does not.

    `transformers` is the image's version, empty where nobody looked.
    """
    return bool(transformers) and not _since_5(transformers)


def _since_5(transformers: str) -> bool:
    major = transformers.partition(".")[0]
    return major.isdigit() and int(major) >= _WITHOUT_THE_PATH


def _whose(chosen: str) -> str:
    if chosen in WITHOUT:
        return f"AWS's library where it is in the image, for {SMDISTRIBUTED} is {chosen}"
    ours = "the kit's open implementation, not AWS's library"
    return ours if chosen == OPEN else f"{ours}, where AWS's is not in the image"
