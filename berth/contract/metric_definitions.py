"""METRIC_DEFINITIONS: what an estimator reads out of the log of a job of `run_qa`, ready for `metric_definitions=`.

SageMaker looks for each expression in each line, and takes the first group as a number. CreateTrainingJob takes 40
definitions at most, names of 255 characters and expressions of 500 (botocore's model of the API, 1.44).
`rendered` is what train/README.md shows.
"""

import json

_NUMBER = "([0-9.]+)"
_STEP = "step [0-9]+ of [0-9]+  "
_TRACE = "trace: steps? [0-9].*  "
# The name of a metric → what stands before its number in the line; that it names one line alone is for a test to say.
_BEFORE = {
    # While it trains, every log_seconds.
    "loss": f"{_STEP}loss: ",
    "examples_per_second": f"{_STEP}.*examples/s: ",
    "tokens_per_second": f"{_STEP}.*tokens/s: ",
    "padding_percent": f"{_STEP}.*padding: ",
    "memory_gb": f"{_STEP}.*memory: ",
    # At each evaluation, and at the end.
    **{f"eval_{name}": f"eval_{name} = " for name in ("loss", "exact_match", "f1")},
    **{f"{kind}_{name}": f"{kind}_{name}: " for kind in ("HasAns", "NoAns") for name in ("exact", "f1", "total")},
    "test_exact_match": "test_exact_match: ",
    "test_f1": "test_f1: ",
    "int8_f1": "int8: on .* has F1 ",
    "int8_exact_match": "int8: on .* exact match ",
    # Once, after training.
    **{name: f"{name} = " for name in ("train_loss", "train_runtime", "train_samples_per_second", "epoch")},
    # Where BERTH_TRACE asks for it.
    "trace_step_seconds": f"{_TRACE}step: ",
    **{f"trace_{name}_percent": f"{_TRACE}{name}: " for name in ("compute", "communication", "data", "other")},
    # The table at the end.
    **{
        f"seconds_{phase}": f"summary  {phase}: +"
        for phase in ("start", "features", "training", "evaluation", "saving", "total")
    },
    "cost_dollars": "summary  cost: +",
    "job_examples_per_second": "summary  examples/s: +",
    "job_tokens_per_second": "summary  tokens/s: +",
    "job_padding_percent": "summary  padding: +",
}
METRIC_DEFINITIONS = [
    {"Name": "learning_rate", "Regex": f"{_STEP}.*learning rate: ([0-9.e+-]+)"},
    *({"Name": name, "Regex": before + _NUMBER} for name, before in _BEFORE.items()),
]


def rendered() -> str:
    """The definitions as JSON, which is Python as well: one to a line."""
    return "[\n" + ",\n".join(f"    {json.dumps(each)}" for each in METRIC_DEFINITIONS) + "\n]"
