"""The covering set of bench.model_parallel_equality: cases of tensor, sharded and pipeline parallelism; pure.

Every pair of values of two factors occurs in a case, unless no possible case contains it.
"""

import functools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from bench import pairwise

KINDS = {
    "mlp": 0, "dicts": 0, "skips": 0, "vit": 4, "vit-3": 3, "roberta": 4, "roberta-5": 5, "bert": 4, "bert-3": 3,
    "gpt2": 4, "gpt2-5": 5, "gptj": 4, "gptj-3": 3, "neox": 4, "neox-5": 5, "llama": 2, "llama-10": 5,
}  # fmt: skip
"""Kind of smdistributed/tests/pipeline_models.py → what its layers are split by: attention heads or, in Llama, pairs of
keys and values. 0: it has no attention, and each of its matrices is split by itself."""
WITHOUT_EMBEDDINGS = ("mlp", "dicts", "skips", "vit", "vit-3")
SHARDING: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "parameters": {"sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0},
    "optimizer state": {"shard_optimizer_state": True},
}
MAX_NORM = 0.5
MOST_RANKS, LEAST_CASES = 8, 300
FACTORS: pairwise.Factors = {
    "model": tuple(KINDS),
    "tensor": (1, 2, 4),
    "partitions": (1, 2, 4),
    "replicas": (1, 2),
    "microbatches": (1, 2, 4, 8),
    "schedule": ("interleaved", "simple"),
    "placement": ("cluster", "spread", "PDT", "PTD", "DTP", "TDP", "TPD"),
    "prescaled": (False, True),
    "embeddings": ("whole", "split"),
    "clipping": (None, MAX_NORM),
    "checkpoints": (False, True),
    "sharding": tuple(SHARDING),
}
SHARE_WITH_DELAYS = 3
"""One case of so many runs with random delays."""


def ranks(case: Mapping[str, Any]) -> int:
    """The number of ranks of a case, or the least number if it has only some of the factors."""
    return int(case.get("tensor", 1) * case.get("partitions", 1) * case.get("replicas", 1))


def problem(case: Mapping[str, Any]) -> str:
    """Why a case, or a part of one, is impossible or equal to another case; "" if it is neither."""
    if ranks(case) > MOST_RANKS:
        return f"more than {MOST_RANKS} ranks"
    if case.get("prescaled") and case.get("tensor") == 1:
        return "prescaled_batch has no effect without tensor parallelism"
    if case.get("embeddings") == "split" and case.get("tensor") == 1:
        return "embeddings are split only by tensor parallelism"
    if case.get("embeddings") == "split" and case.get("model") in WITHOUT_EMBEDDINGS:
        return "the model has no embeddings"
    sharding = case.get("sharding", "none")
    if sharding != "none" and case.get("replicas") == 1:
        return "sharding needs replicas"
    if sharding == "parameters" and case.get("partitions", 1) > 1:
        return "sharded_data_parallel_degree needs one partition"
    return ""


def is_possible(case: Mapping[str, Any]) -> bool:
    """Whether `problem` finds nothing."""
    return not problem(case)


def layers_stay_whole(case: Mapping[str, Any]) -> bool:
    """Whether the model has fewer heads than tensor parallel ranks, so that only matrices outside layers are split."""
    return 0 < KINDS[case["model"]] < case["tensor"]


@functools.lru_cache(maxsize=1)
def chosen_cases(seed: int) -> tuple[pairwise.Case, ...]:
    """The cases of the covering set. `delays`: the seed of random delays, None without."""
    cases = pairwise.covering_cases(FACTORS, is_possible, LEAST_CASES, seed)
    delayed = set(random.Random(seed).sample(range(len(cases)), -(-len(cases) // SHARE_WITH_DELAYS)))
    return tuple({**case, "delays": index if index in delayed else None} for index, case in enumerate(cases))


def batches(case: Mapping[str, Any]) -> int:
    """How many batches the ranks have together."""
    return int(case["replicas"] * (1 if case["prescaled"] else case["tensor"]))


def cases_of(size: int, models: Sequence[str], seed: int) -> list[dict[str, Any]]:
    """The cases with this many ranks, as arguments of pipeline_cases.equality; neighbours share a reference."""
    chosen = [case for case in chosen_cases(seed) if ranks(case) == size and case["model"].partition("-")[0] in models]
    chosen.sort(key=lambda case: (case["model"], case["microbatches"] * batches(case), case["clipping"] or 0.0))
    return [arguments(case) for case in chosen]


def arguments(case: pairwise.Case) -> dict[str, Any]:
    """A case as arguments of pipeline_cases.equality, next to its factors."""
    config = {
        "tensor_parallel_degree": case["tensor"],
        "pipeline_parallel_degree": case["partitions"],
        "microbatches": case["microbatches"],
        "pipeline": case["schedule"],
        "placement_strategy": case["placement"],
        "prescaled_batch": case["prescaled"],
        "ddp": True,
        **SHARDING[case["sharding"]],
    }
    training = {"max_norm": case["clipping"], "checkpoints": case["checkpoints"], "delays": case["delays"]}
    split = case["embeddings"] == "split"
    return {"factors": case, "kind": case["model"], "config": config, "embeddings": split, "training": training}


def checked(case: dict[str, Any]) -> dict[str, Any]:
    """A case's result. It is bad too if tensor parallelism split nothing although it could."""
    factors = case["factors"]
    if factors["tensor"] > 1 and not case["distributed"] and not layers_stay_whole(factors):
        return {**case, "bad": {**case["bad"], "split modules": (0, 1)}}
    return case


def without_result(case: dict[str, Any], reason: str) -> dict[str, Any]:
    """The result of a case that raised or hung."""
    infinite = dict.fromkeys(("loss", "gradients", "parameters", "momentum", "drift"), float("inf"))
    limits = dict.fromkeys(infinite, 0.0)
    measured = {"errors": infinite, "limits": limits, "seconds": 0.0, "clipped_steps": 0}
    return {**case, **measured, "bad": {"error": reason}}


def reason_of(output: str) -> str:
    """Why a launch failed, in one line, from the output of its ranks."""
    if "Timeout (" in output:
        return "it hangs"
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
