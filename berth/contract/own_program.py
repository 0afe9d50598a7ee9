"""Whether a job runs the user's program or run_qa, which needs transformers 5 or later.

An image with another transformers rejects run_qa; the user's machine checks the same before it starts a container.
"""

from collections.abc import Mapping

from berth.contract.hyperparameters import unquote

TRANSFORMERS = 5
"""The lowest major version of transformers that run_qa supports."""

HYPERPARAMETER = "sagemaker_program"
VARIABLE = "SAGEMAKER_PROGRAM"
"""Set by an image that contains its program; a job may set it as well."""


def find_program(hyperparameters: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """The user's program, relative to the code folder; None means run_qa.

    environ: the container's variables. They take precedence, as in sagemaker-training (environment.py, 5.1.4).
    """
    return environ.get(VARIABLE) or unquote(hyperparameters.get(HYPERPARAMETER, "")).strip() or None


def run_qa_error(transformers: str, cuda: str) -> str:
    """Why an image with this transformers can't run run_qa, in a sentence; empty if it can.

    transformers: empty if the version is unknown, which counts as suitable. cuda: the CUDA of the image's torch, such
    as 12.4 or 13.0.3; empty for a CPU build.
    """
    if not transformers or int(transformers.partition(".")[0]) >= TRANSFORMERS:
        return ""
    profile = f"cu{''.join(cuda.split('.')[:2])}" if cuda else "cpu"
    return (
        f"run_qa, the kit's own program, is for transformers {TRANSFORMERS} and this image has {transformers}: train "
        f"with an image of the profile {profile}, or give a program of your own (entry_point of an estimator, "
        "--code of `build.py run train`, the hyperparameter sagemaker_program)."
    )
