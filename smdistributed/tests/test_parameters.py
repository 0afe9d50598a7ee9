"""The options of model parallelism: supported, without effect, or an error; all errors are reported together."""

from itertools import permutations
from typing import Any

import pytest

from berth.smdistributed.modelparallel import parameters
from berth.smdistributed.modelparallel.parameters import ParameterError, parse


def problems(mapping: dict[str, Any], world_size: int | None = None) -> tuple[str, ...]:
    with pytest.raises(ParameterError) as caught:
        parse(mapping, world_size)
    return caught.value.problems


def test_default_is_one_partition() -> None:
    assert parse({}) == parameters.ModelParallelParameters()
    assert parse({}).pipeline_parallel_degree == parse({}).microbatches == 1
    assert parse({}).open_microbatches == 3


def test_options_of_published_notebook() -> None:
    """From huggingface/notebooks: text classification with model parallelism."""
    given = {
        "microbatches": 4,
        "placement_strategy": "spread",
        "pipeline": "interleaved",
        "optimize": "speed",
        "partitions": 4,
        "ddp": True,
    }
    parsed = parse(given, 8)
    assert (parsed.pipeline_parallel_degree, parsed.partitions, parsed.microbatches, parsed.ddp) == (4, 4, 4, True)
    assert (parsed.placement_strategy, parsed.pipeline) == ("spread", "interleaved")
    assert [line.split()[0] for line in parsed.remarks] == ["optimize"]
    assert (parsed.active_microbatches, parsed.open_microbatches) == (None, 6)


@pytest.mark.parametrize("placement", ["cluster", "spread", *("".join(letters) for letters in permutations("DPT"))])
def test_every_placement_is_accepted(placement: str) -> None:
    assert parse({"placement_strategy": placement.lower()}).placement_strategy == placement


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("microbatches", "4", 4),
        ("microbatches", 4.0, 4),
        ("ddp", "True", True),
        ("ddp", "false", False),
        ("ddp", 1, True),
        ("ddp", None, False),
        ("pipeline", " Simple", "simple"),
        ("default_partition", 0, 0),
        ("deterministic_server", True, True),
        ("prescaled_batch", True, True),
        ("active_microbatches", 2, 2),
        ("bf16", True, True),
        ("fp16", True, True),
        ("ddp_dist_backend", "GLOO", "gloo"),
        ("tensor_parallel_degree", 1, 1),
        ("sharded_data_parallel_degree", "1", 1),
        ("sharded_data_parallel_degree", 0, 1),
        ("shard_optimizer_state", False, False),
        ("offload_activations", 1, True),
    ],
)
def test_values_are_converted(name: str, given: object, expected: object) -> None:
    assert getattr(parse({name: given}), name) == expected
    assert parse({name: given}).remarks == ()


@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [
        ("microbatches", 0, "a whole number of at least 1"),
        ("microbatches", 1.5, "a whole number of at least 1"),
        ("microbatches", True, "a whole number of at least 1"),
        ("microbatches", "four", "a whole number of at least 1"),
        ("microbatches", "inf", "a whole number of at least 1"),
        ("microbatches", float("nan"), "a whole number of at least 1"),
        ("partitions", [2], "a whole number of at least 1"),
        ("default_partition", -1, "a whole number of at least 0"),
        ("ddp", "yes", "true or false"),
        ("ddp", 2, "true or false"),
        ("ddp", {}, "true or false"),
        ("pipeline", "gpipe", "one of interleaved, simple"),
        ("optimize", 1, "one of speed, memory"),
        ("ddp_dist_backend", "mpi", "one of auto, nccl, gloo"),
        ("memory_weight", 1.5, "a number from 0.0 to 1.0"),
        ("sharded_data_parallel_degree", -1, "a whole number of at least 0, where 0 and 1 turn it off"),
        ("sdp_gradient_clipping", -1.0, "a number of at least 0"),
        ("sdp_gradient_clipping", "inf", "a number of at least 0"),
        ("placement_strategy", "DDP", "one of cluster, spread, DPT, DTP, PDT, PTD, TDP, TPD"),
    ],
)
def test_invalid_value_is_an_error(name: str, given: object, kind: str) -> None:
    assert problems({name: given}) == (f"{name} is {given!r}; it must be {kind}.",)


def test_both_names_of_degree_can_be_equal() -> None:
    assert parse({"partitions": 2, "pipeline_parallel_degree": "2"}).pipeline_parallel_degree == 2


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        *(
            ({name: "speed" if name == "optimize" else 1}, {name: reason})
            for name, (_, reason) in sorted(parameters.ACCEPTED.items())
        ),
        ({"skip_tracing": False, "optimize": None, "parameter_server": None}, {}),
        (
            {"partitions": 1, "parameter_server": {"enabled": True}},
            {"parameter_server": "it is for TensorFlow, and not an option of model parallelism"},
        ),
        ({"_some_tuning": 3}, {"_some_tuning": "it tunes the inside of AWS's library"}),
    ],
)
def test_option_without_effect_is_reported_unless_disabled(given: dict[str, Any], reasons: dict[str, str]) -> None:
    expected = [f"{name} changes nothing here: {reason}." for name, reason in reasons.items()]
    assert list(parse(given).remarks) == expected


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("partitons", "partitons is not an option of smdistributed modelparallel; did you mean partitions?"),
        ("Microbatches", "Microbatches is not an option of smdistributed modelparallel; did you mean microbatches?"),
        ("zzz", "zzz is not an option of smdistributed modelparallel; remove it."),
        ("horovod", "horovod is for TensorFlow, and this library is for PyTorch; use ddp instead."),
        ("trace_device", "trace_device is an argument of smp.DistributedModel; give it there."),
        (
            "hybrid_shard_degree",
            "hybrid_shard_degree is an option of version 2 of the library, and this is version 1; use "
            "sharded_data_parallel_degree.",
        ),
    ],
)
def test_unknown_option_is_an_error(name: str, sentence: str) -> None:
    assert problems({name: 2}) == (sentence,)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"partitions": 2, "pipeline_parallel_degree": 3},
            "partitions is 2 and pipeline_parallel_degree is 3, two names of one option; keep one.",
        ),
        (
            {"partitions": 2, "default_partition": 2},
            "default_partition is 2, but 2 partitions are numbered from 0 to 1; choose one of these.",
        ),
        ({"fp16": True, "bf16": True}, "fp16 and bf16 are both true; choose one."),
        (
            {"partitions": 2, "auto_partition": False},
            "auto_partition is false, so default_partition is needed, for modules that no smp.partition assigns; add "
            '"default_partition": 0.',
        ),
        ({"tensor_parallel_degree": 2}, "tensor_parallel_degree is 2, which needs ddp; set ddp to true."),
        (
            {"tensor_parallel_degree": 4, "ddp": True},
            "pipeline_parallel_degree 1 times tensor_parallel_degree 4 is 4, which does not divide the 6 ranks of this "
            "job; change a degree, the number of ranks per host, or of hosts.",
        ),
        (
            {"partitions": 3, "pipeline_parallel_degree": 1, "tensor_parallel_degree": 2, "ddp": True},
            "partitions is 3 and pipeline_parallel_degree is 1, two names of one option; keep one.",
        ),
        (
            {"sharded_data_parallel_degree": 2},
            "sharded_data_parallel_degree is 2, which needs ddp; set ddp to true.",
        ),
        ({"shard_optimizer_state": True}, "shard_optimizer_state is true, which needs ddp; set ddp to true."),
        (
            {"sharded_data_parallel_degree": 3, "partitions": 2, "ddp": True},
            "sharded_data_parallel_degree is 3 and the model has 2 partitions; set one of them to 1.",
        ),
        (
            {"sharded_data_parallel_degree": 3, "shard_optimizer_state": True, "ddp": True},
            "sharded_data_parallel_degree is 3, which shards the optimizer's state too; set shard_optimizer_state to "
            "false.",
        ),
        (
            {"sharded_data_parallel_degree": 4, "ddp": True},
            "sharded_data_parallel_degree is 4, which does not divide the 6 replicas of this job; change it, the "
            "number of ranks per host, or of hosts.",
        ),
        (
            {"sharded_data_parallel_degree": 2, "tensor_parallel_degree": 2, "ddp": True},
            "sharded_data_parallel_degree is 2, which does not divide the 3 replicas of this job; change it, the "
            "number of ranks per host, or of hosts.",
        ),
        (
            {"partitions": 4, "ddp": True},
            "4 partitions do not divide the 6 ranks of this job; change the number of partitions, of ranks per host, "
            "or of hosts.",
        ),
    ],
)
def test_contradictory_or_unsupported_options_are_an_error(given: dict[str, Any], sentence: str) -> None:
    assert problems(given, 6) == (sentence,)


def test_partitions_can_be_the_product_of_both_degrees() -> None:
    """As in a public notebook."""
    both = {"pipeline_parallel_degree": 2, "tensor_parallel_degree": 2, "ddp": True}
    parsed = parse({**both, "partitions": 4}, 4)
    assert (parsed.partitions, parsed.pipeline_parallel_degree) == (2, 2)
    assert parsed.remarks == (
        "partitions is 4, the product of pipeline_parallel_degree 2 and tensor_parallel_degree 2; the model has 2 "
        "partitions.",
    )
    assert parse({**both, "partitions": 2}, 4).remarks == ()


def test_clipping_of_sharded_gradients_is_read_or_reported() -> None:
    sharded = {"sharded_data_parallel_degree": 2, "ddp": True}
    assert parse(sharded).sdp_gradient_clipping == 1.0
    assert parse({**sharded, "sdp_gradient_clipping": "0.5"}).sdp_gradient_clipping == 0.5
    (line,) = parse({"sdp_gradient_clipping": 1.0}).remarks
    assert line == "sdp_gradient_clipping changes nothing here: sharded_data_parallel_degree is not above 1."


def test_replicas_without_ddp_are_reported() -> None:
    (line,) = parse({"partitions": 2}, 4).remarks
    assert line.startswith("ddp is not set, so the 2 replicas of the model exchange no gradients")
    assert parse({"partitions": 2}, 2).remarks == parse({"partitions": 2, "ddp": True}, 4).remarks == ()


def test_all_problems_are_reported_together() -> None:
    given = {
        "partitons": 2,
        "pipeline": "x",
        "microbatches": 0,
        "tensor_parallel_degree": 2,
        "fp16": True,
        "bf16": True,
    }
    sentences = problems(given, 3)
    assert len(sentences) == 6
    with pytest.raises(ParameterError) as caught:
        parse(given, 3)
    assert str(caught.value).splitlines() == ["6 options of model parallelism are wrong:", *sentences]
