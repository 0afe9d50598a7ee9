"""Published scripts with tensor parallelism, sharded data parallelism and sharded optimizer states.

The options are those of the scripts' notebooks with smaller degrees. The losses of a run are those of the same script
with plain data parallelism and as many batches.
"""

from bench.scripts.table import AWS, CUDA, GPT_SIMPLE, GPT_SMALL, PYTORCH, Run, Script, smp_run

_FILES = ("data_pipeline.py", "learning_rates.py", "memory_tracker.py", "model_config.py", "sdp_utils.py")
_EDITS = (*CUDA, ("torch.cuda.synchronize()", "None"))


def _train(folder: str, blob: str) -> Script:
    return Script(f"{AWS}@f2f9985b", f"{PYTORCH}/model_parallel/{folder}/train.py", blob, _FILES, _EDITS)


GPT_J, GPT2, GPT_NEOX = (
    _train("gpt-j", "04ccb64ab4ee"),
    _train("gpt2", "e1d168f2e477"),
    _train("gpt-neox", "158a2e7a5248"),
)
_LOSS = r"(?:Loss|Validation loss): ([0-9.]+|nan)"
_COMMON = {
    **{**GPT_SMALL, "use_distributed_transformer": "1", "manual_partition": "0", "pipeline_parallel_degree": "1"},
    **{"microbatches": "1", "max_steps": "6", "seed": "7"},
}
_FP16 = {"fp16": "1", "max_steps": "32", "epochs": "20", "validation_freq": "8"}
"""The first 16 steps only lower the scale of the loss."""
_FIVE_HEADS = {"num_heads": "5", "hidden_width": "80"}


def _run(script: Script, ranks: int, losses: tuple[float, float], arguments: dict[str, str], note: str) -> Run:
    """arguments: of the script; the job's options are those of the same names."""
    arguments = {**_COMMON, **arguments}
    options: dict[str, object] = {"ddp": True, "partitions": int(arguments["pipeline_parallel_degree"])}
    for name in ("tensor_parallel_degree", "sharded_data_parallel_degree", "microbatches"):
        options |= {name: int(arguments[name])} if name in arguments else {}
    for name in ("prescaled_batch", "shard_optimizer_state", "fp16", "bf16"):
        options |= {name: arguments[name] == "1"} if name in arguments else {}
    return smp_run(script, ranks, _LOSS, options, arguments=arguments, losses=losses, note=note)


_BF16 = {"bf16": "1", "log_reduced_training_loss": "1", "tensor_parallel_degree": "1"}
_SHARDED = {"shard_optimizer_state": "1", "tensor_parallel_degree": "2"}
_SDP_2 = {"sharded_data_parallel_degree": "2", "log_reduced_training_loss": "1", "tensor_parallel_degree": "1"}
RUNS = (
    _run(GPT_SIMPLE, 4, (4.89828, 4.15575), {**_SHARDED, **_FP16}, "sharded optimizer, fp16, 4 layers of 64"),
    _run(
        GPT_SIMPLE,
        8,
        (4.99673, 4.83305),
        {
            **_SHARDED,
            "prescaled_batch": "1",
            "microbatches": "2",
            "pipeline_parallel_degree": "2",
            "manual_partition": "1",
        },
        "sharded optimizer, two partitions, 4 layers of 64",
    ),
    _run(GPT_J, 2, (4.95304, 4.82059), _SDP_2, "4 layers of 64"),
    _run(
        GPT_J,
        4,
        (4.95304, 4.82059),
        {**_SDP_2, "tensor_parallel_degree": "2", "prescaled_batch": "1"},
        "4 layers of 64",
    ),
    _run(
        GPT_J,
        8,
        (5.07155, 4.80330),
        {**_SDP_2, **_FIVE_HEADS, "tensor_parallel_degree": "4", "prescaled_batch": "1", "bf16": "1"},
        "5 heads on 4 ranks, bf16, 4 layers of 80",
    ),
    _run(GPT2, 4, (4.96938, 4.71529), {**_BF16, "sharded_data_parallel_degree": "4"}, "bf16, 4 layers of 64"),
    _run(
        GPT_NEOX,
        2,
        (5.01716, 4.28353),
        {**_BF16, "sharded_data_parallel_degree": "2", "model_type": "gpt_neox"},
        "bf16, 4 layers of 64",
    ),
)
