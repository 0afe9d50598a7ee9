"""METRIC_DEFINITIONS: the metrics in the log of a `run_qa` job, for an estimator's `metric_definitions=`.

SageMaker searches each line of the log for each expression; the first group is the number. CreateTrainingJob accepts up
to 40 definitions, names of 255 characters and expressions of 500 (botocore's model of the API, 1.44).
train/README.md shows the list.
"""

_NUMBER = "([0-9.]+)"
_STEP = "step [0-9]+ of [0-9]+  "
_TRACE = "trace: steps? [0-9].*  "
# Metric → expression for the text before its number. Each one must match only its own log line (a test checks it).
_BEFORE = {
    # During training, every log_seconds.
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
    # If BERTH_TRACE is set.
    "trace_step_seconds": f"{_TRACE}step: ",
    **{f"trace_{name}_percent": f"{_TRACE}{name}: " for name in ("compute", "communication", "data", "other")},
    # The summary at the end.
    **{
        f"seconds_{phase}": f"summary  {phase}: +"
        for phase in ("start", "features", "training", "evaluation", "saving", "total")
    },
    "job_examples_per_second": "summary  examples/s: +",
    "job_tokens_per_second": "summary  tokens/s: +",
    "job_padding_percent": "summary  padding: +",
}
METRIC_DEFINITIONS = [
    {"Name": "learning_rate", "Regex": f"{_STEP}.*learning rate: ([0-9.e+-]+)"},
    *({"Name": name, "Regex": before + _NUMBER} for name, before in _BEFORE.items()),
]
