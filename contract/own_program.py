"""run_qa, the kit's own training program, is for transformers 5: an image refuses it with another, and so does this
machine before it starts one.
"""

TRANSFORMERS = 5
"""The first major version of transformers that run_qa is for."""


def without_run_qa(transformers: str, cuda: str) -> str:
    """Why an image with this transformers can't run run_qa, in a sentence; empty where it can, or where its version is
    not known (empty).

    cuda: the CUDA of the image's torch, such as 12.4 or 13.0.3; empty for a CPU build.
    """
    if not transformers or int(transformers.partition(".")[0]) >= TRANSFORMERS:
        return ""
    profile = f"cu{''.join(cuda.split('.')[:2])}" if cuda else "cpu"
    return (
        f"run_qa, the kit's own program, is for transformers {TRANSFORMERS} and this image has {transformers}: train "
        f"with an image of the profile {profile}, or give a program of your own (entry_point of an estimator, "
        "--code of `build.py run train`, the hyperparameter sagemaker_program)."
    )
