"""Published scripts with tensor parallelism, sharded data parallelism and sharded optimizer states.

The options are those of the scripts' notebooks with smaller degrees. The losses of a run are those of the same script
with plain data parallelism and as many batches, those of the guide's CNN, GPT-J with Trainer and run_glue.py those of
one process.
"""

from typing import Any

from bench.scripts.table import AWS, CUDA, GPT_SIMPLE, GPT_SMALL, GUIDE, NOTEBOOKS, OLDER, PYTORCH, Run, Script, smp_run

_FILES = ("data_pipeline.py", "learning_rates.py", "memory_tracker.py", "model_config.py", "sdp_utils.py")
_EDITS = (*CUDA, ("torch.cuda.synchronize()", "None"))


def _train(folder: str, blob: str, helpers: tuple[str, ...] = (), edits: tuple[tuple[str, str], ...] = ()) -> Script:
    """helpers, edits: those that only this folder needs."""
    path = f"{PYTORCH}/model_parallel/{folder}/train.py"
    return Script(f"{AWS}@f2f9985b", path, blob, (*_FILES, *helpers), (*_EDITS, *edits))


GPT_J, GPT2, GPT_NEOX = (
    _train("gpt-j", "04ccb64ab4ee"),
    _train("gpt2", "e1d168f2e477"),
    _train("gpt-neox", "158a2e7a5248"),
)
FLAN_T5 = _train("flan-t5", "c7457ba57f60", ("t5_flash_attn.py",), (('"dropout_rate": 0.1', '"dropout_rate": 0.0'),))
FALCON = _train(
    "falcon",
    "644d51c8631c",
    ("modelling_RW.py", "configuration_RW.py"),
    (
        (
            'AutoConfig.from_pretrained("tiiuae/falcon-7b", trust_remote_code=True)',
            '__import__("configuration_RW").RWConfig(vocab_size=args.vocab_size, bias=False)',
        ),
    ),
)
"""Its configuration is one of the hub."""
GPT_J_TRAINER = Script(
    f"{AWS}@68615341",
    f"{PYTORCH}/model_parallel/gpt-j/train_gptj_smp_script.py",
    "a3cf93da2ab1",
    ("args.py", "learning_rates.py", "preprocess.py", "smp_trainer.py"),
    CUDA,
)
RUN_GLUE_SMP = Script(
    NOTEBOOKS,
    "sagemaker/04_distributed_training_model_parallelism/scripts/run_glue.py",
    "3ed3267db5ee",
    edits=(
        # SageMakerTrainingArguments needs a GPU. The model's folder is not a checkpoint to resume from.
        ("from transformers.sagemaker import SageMakerTrainingArguments as", "from transformers import"),
        ("TrainingArguments, SageMakerTrainer as Trainer", "TrainingArguments, Trainer"),
        ("checkpoint = model_args.model_name_or_path", "checkpoint = None"),
        ("num_labels=num_labels,", "num_labels=num_labels, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,"),
    ),
)
CNN = Script(
    f"{GUIDE}@9e8dd3d3",
    "doc_source/model-parallel-extended-features-pytorch-tensor-parallelism-examples.md",
    "0998a0ac2a3f",
    edits=(
        *CUDA,
        # As published, other ranks than a host's first have no data, the optimizer's name is misspelt, and spaces are
        # not those of Python.
        ("\N{NO-BREAK SPACE}", " "),
        ("if smp.local_rank() == 0:\n    dataset =", "if True:\n    dataset ="),
        ("optim.AdaDelta", "optim.Adadelta"),
        ("smp.init()\n", "smp.init()\ntorch.manual_seed(7)\n"),
        (
            "loss.backward()\n",
            "loss.backward()\n        if smp.rank() == 0:\n            print('Loss:', float(loss))\n",
        ),
    ),
    block=2,
)
"""It has no smp.step and calls loss.backward()."""
_LOSS = r"(?:Loss|Validation loss): ([0-9.]+|nan)"
_COMMON = {
    **{**GPT_SMALL, "use_distributed_transformer": "1", "manual_partition": "0", "pipeline_parallel_degree": "1"},
    **{"microbatches": "1", "max_steps": "6", "seed": "7"},
}
_FP16 = {"fp16": "1", "max_steps": "32", "epochs": "20", "validation_freq": "8"}
"""The first 16 steps only lower the scale of the loss."""
_FIVE_HEADS = {"num_heads": "5", "hidden_width": "80"}


def _run(
    script: Script, ranks: int, losses: tuple[float, ...], arguments: dict[str, str], note: str, **more: Any
) -> Run:
    """arguments: of the script; the job's options are those of the same names."""
    arguments = {**_COMMON, **arguments}
    options: dict[str, object] = {"ddp": True, "partitions": int(arguments["pipeline_parallel_degree"])}
    for name in ("tensor_parallel_degree", "sharded_data_parallel_degree", "microbatches"):
        options |= {name: int(arguments[name])} if name in arguments else {}
    for name in ("prescaled_batch", "shard_optimizer_state", "fp16", "bf16"):
        options |= {name: arguments[name] == "1"} if name in arguments else {}
    return smp_run(script, ranks, _LOSS, options, arguments=arguments, losses=losses, note=note, **more)


_BF16 = {"bf16": "1", "log_reduced_training_loss": "1", "tensor_parallel_degree": "1"}
_SHARDED = {"shard_optimizer_state": "1", "tensor_parallel_degree": "2"}
_SDP_2 = {"sharded_data_parallel_degree": "2", "log_reduced_training_loss": "1", "tensor_parallel_degree": "1"}
_T5 = {
    **{"model_type": "flan_t5", "intermediate_size": "128", "flash_attention": "0", "tensor_parallel_degree": "1"},
    "log_reduced_training_loss": "1",
}
_FOUR = {"tensor_parallel_degree": "2", "pipeline_parallel_degree": "2", "manual_partition": "1"}
_FALCON = {
    **{"model_type": "falcon", "hidden_width": "256", "num_heads_kv": "4", "use_distributed_transformer": "0"},
    **{"log_reduced_training_loss": "1", "tensor_parallel_degree": "1"},
}
_FALCON_NOTE = "4 layers of 256, configuration not from the hub"
_GUIDE = {"pipeline_parallel_degree": 1, "placement_strategy": "cluster", "tensor_parallel_degree": 2, "ddp": True}
_GPT_J_OPTIONS = {
    **{"ddp": True, "partitions": 2, "microbatches": 2, "active_microbatches": 2, "shard_optimizer_state": True},
    **{"prescaled_batch": False, "optimize": "memory", "auto_partition": True, "default_partition": 0},
    "offload_activations": True,
}
_GPT_J_ARGUMENTS = {
    **{"dataset_name": "/opt/ml/input/data/train", "model_name_or_path": "/opt/ml/input/data/model"},
    **{"do_train": "True", "do_eval": "False", "block_size": "32", "per_device_train_batch_size": "2"},
    **{"output_dir": "/tmp/temp", "max_steps": "20", "seed": "12345", "lr": "2e-4", "lr_decay_iters": "100"},
    **{"min_lr": "1e-5", "same_seed": "1", "ddp": "True", "cache_dir": "/tmp", "save_final_full_model": "1"},
    # As in the job's options: a second smp.init with others is an error.
    **{"pipeline_parallel_degree": "2", "microbatches": "2", "active_microbatches": "2", "optimize": "memory"},
    **{"shard_optimizer_state": "1", "offload_activations": "1"},
}
_GLUE = {
    **{"model_name_or_path": "/opt/ml/input/data/model", "output_dir": "/opt/ml/model", "max_seq_length": "32"},
    **{"train_file": "/opt/ml/input/data/train/train.csv", "do_train": "True", "do_eval": "True", "max_steps": "3"},
    **{"validation_file": "/opt/ml/input/data/validation/validation.csv", "learning_rate": "1e-4"},
    **{"per_device_train_batch_size": "30", "logging_steps": "1", "save_strategy": "no", "disable_tqdm": "True"},
}
"""Each step has all 60 rows, so that their order does not matter."""
_GLUE_OPTIONS = {"partitions": 2, "tensor_parallel_degree": 2, "microbatches": 2, "ddp": True}
_GLUE_LOSS = r"'(?:loss|eval_loss)': ([0-9.]+)"
_SPLIT_LAYERS = """
import runpy
import transformers.training_args
import smdistributed.modelparallel.torch as smp
created = transformers.AutoModelForSequenceClassification.from_pretrained
def split(*words, **options):
    with smp.tensor_parallelism():
        return created(*words, **options)
transformers.AutoModelForSequenceClassification.from_pretrained = split
runpy.run_path("run_glue.py", run_name="__main__")
"""
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
    _run(FLAN_T5, 4, (5.65994, 3.92990), _T5 | _FOUR, "two partitions, whole layers, 4 of 64"),
    _run(
        FLAN_T5,
        4,
        (5.96641, 4.13163),
        _T5 | _FOUR | {"flash_attention": "1"},
        "two partitions, whole layers, attention of a double of flash_attn",
        image=OLDER,
    ),
    _run(
        FLAN_T5,
        2,
        (),
        _T5 | {"flash_attention": "1"},
        "its attention has the arguments of transformers 4",
        fails=r"T5FlashAttention.forward\(\) got an unexpected keyword argument 'past_key_values'",
    ),
    _run(
        FLAN_T5,
        2,
        (),
        _T5 | {"sharded_data_parallel_degree": "2"},
        "reads ds_tensor, an attribute of DeepSpeed's parameters",
        fails="has no attribute 'ds_tensor'",
    ),
    _run(
        FALCON,
        2,
        (4.92276, 1.73833),
        _FALCON | {"sharded_data_parallel_degree": "2", "bf16": "1"},
        f"bf16, {_FALCON_NOTE}",
        image=OLDER,
    ),
    _run(FALCON, 2, (4.92297, 1.78422), _FALCON | {"tensor_parallel_degree": "2"}, _FALCON_NOTE, image=OLDER),
    _run(
        FALCON, 2, (), _FALCON, "calls get_head_mask, which transformers 5 lacks", fails="no attribute 'get_head_mask'"
    ),
    smp_run(CNN, 2, _LOSS, _GUIDE, losses=(2.306201, 0.277492), note="loss.backward() outside of steps"),
    Run(
        GPT_J_TRAINER,
        _LOSS,
        OLDER,
        "modelparallel",
        2,
        parameters=_GPT_J_OPTIONS,
        arguments=_GPT_J_ARGUMENTS,
        data="csv",
        model="gptj",
        losses=(10.3629, 10.3441),
        note="4 layers of 64",
    ),
    *(
        Run(
            RUN_GLUE_SMP,
            _GLUE_LOSS,
            OLDER,
            "modelparallel",
            4,
            parameters=_GLUE_OPTIONS,
            arguments=_GLUE,
            data="csv",
            model="demo",
            program=program,
            losses=(0.6935, 0.694736),
            note=note,
        )
        for program, note in (("", "whole layers"), (_SPLIT_LAYERS, "split layers"))
    ),
)
