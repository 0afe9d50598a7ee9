"""The scripts of bench/user_scripts.py: where each was published, how it is started, and the expected result.

A script is FOLDER/SOURCE/path; SOURCE names a repository and a commit or version. `blob` is the beginning of git's hash
of the script, and a script with another hash is an error; if `blob` is empty, the hash is not checked.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from berth.images.pins import pins

AWS = "aws-examples"
GUIDE = "awsdocs"
PACKT = "packt"
TRANSFORMERS = "transformers"
NOTEBOOKS = "notebooks@5068b114"
REPOSITORIES = {
    AWS: "aws/amazon-sagemaker-examples",
    GUIDE: "awsdocs/amazon-sagemaker-developer-guide",
    PACKT: "PacktPublishing/Applied-Machine-Learning-and-High-Performance-Computing-on-AWS",
    TRANSFORMERS: "huggingface/transformers",
    "notebooks": "huggingface/notebooks",
}
CURRENT, OLDER = f"berth-train:{pins.DEFAULT_PROFILE}", "berth-train:cpu-hf4"
PYTORCH = "training/distributed_training/pytorch"

CUDA = (
    ('torch.device("cuda")', 'torch.device("cpu")'),
    ('torch.device(f"cuda:{local_rank}")', 'torch.device("cpu")'),
    ("torch.cuda.set_device(", "(lambda device: None)("),
    ("model.cuda(local_rank)", "model.cpu()"),
    ("if not torch.cuda.is_available():", "if False:"),
    ("torch.utils.tensorboard", "summary_writer"),
)
"""Calls that need a GPU or a missing package → their replacements."""
TORCH_DDP = (("device_ids=[local_rank]", "device_ids=None"),)
"""For scripts with torch's DDP, which refuses device_ids on CPUs; the DDP of SMDDP version 1 ignores them there."""
S3 = (("sync_local_checkpoints_to_s3(local_path=", "(lambda **arguments: None)(local_path="),)


@dataclass(frozen=True)
class Script:
    """A published script: its place, other files of its folder that it needs, and replacements of its text.

    block: the number of the code block that is the script, if the path is a page of Markdown.
    """

    source: str
    path: str
    blob: str = ""
    helpers: tuple[str, ...] = ()
    edits: tuple[tuple[str, str], ...] = ()
    block: int = 0

    @property
    def repository(self) -> str:
        return REPOSITORIES[self.source.partition("@")[0]]

    @property
    def name(self) -> str:
        name = self.path.rpartition("/")[2]
        return "script.py" if self.block else name


@dataclass(frozen=True)
class Run:
    """A script, how it is started, and the expected result.

    way: `one process`, `mpi`, `dataparallel` or `modelparallel` (with `parameters`, as in mp_parameters). data: a kind
    of data from bench/scripts/data.py. model: a folder next to the kinds of data, or `demo` for the demo's model.
    program: the text of a program that is started instead of the script. checkpoints: name of a checkpoint folder; runs
    with the same name share it. batch: rows per replica; Trainer logs their sum. figures: pattern of the figures that
    the script prints. losses: the first and the last figure if the script runs in one process. fails: pattern of the
    expected reason of failure. alone: the ranks' weights must differ, and the log must report it.
    """

    script: Script
    figures: str
    image: str = CURRENT
    way: str = "one process"
    ranks: int = 1
    hosts: int = 1
    parameters: Mapping[str, object] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    data: str = ""
    model: str = ""
    program: str = ""
    checkpoints: str = ""
    batch: int = 0
    losses: tuple[float, ...] = ()
    fails: str = ""
    alone: bool = False
    note: str = ""

    @property
    def replicas(self) -> int:
        partitions, tensor = (self.parameters.get(name, 1) for name in ("partitions", "tensor_parallel_degree"))
        assert isinstance(partitions, int)
        assert isinstance(tensor, int)
        return self.ranks // (partitions * tensor)

    @property
    def description(self) -> str:
        """A description of how it is started."""
        parameters = "".join(f", {key} {json.dumps(value)}" for key, value in self.parameters.items())
        return f"{self.way}{parameters}, {self.ranks} ranks on {self.hosts} hosts"

    @property
    def hyperparameters(self) -> dict[str, str]:
        """The hyperparameters that SDK v2's estimator sends for the distribution."""
        if self.way == "dataparallel":
            return {"sagemaker_distributed_dataparallel_enabled": "true", "sagemaker_instance_type": '"ml.p3.16xlarge"'}
        if self.way == "modelparallel":
            return {
                "mp_parameters": json.dumps(self.parameters),
                "sagemaker_mpi_enabled": "true",
                "sagemaker_mpi_num_of_processes_per_host": str(self.ranks),
            }
        return {}

    @property
    def environment(self) -> dict[str, str]:
        """The job's variables: mpi, ranks per host, one thread per rank, HF_HUB_OFFLINE for transformers' examples."""
        variables = {"HF_HUB_OFFLINE": "1"} if self.data in ("json", "csv") else {}
        if self.ranks > 1:
            variables["OMP_NUM_THREADS"] = "1"
        if self.way == "mpi":
            variables["BERTH_DISTRIBUTION"] = "mpi"
        if self.way in ("mpi", "dataparallel"):
            variables["BERTH_PROCESSES_PER_HOST"] = str(self.ranks // self.hosts)
        return variables


MNIST = f"{PYTORCH}/data_parallel/mnist/code/train_pytorch_smdataparallel_mnist.py"
# The folder's name begins with six spaces.
HEAD_MNIST = (
    "      build_and_train_models/sm-distributed_data_parallelism_pytorch/code/train_pytorch_smdataparallel_mnist.py"
)
MNIST_V1 = Script(f"{AWS}@de48dae6", MNIST, "b142c298ed15", ("model_def.py",), CUDA)
MNIST_V2 = Script(f"{AWS}@01dbfb67", MNIST, "99438a3da3c0", ("model_def.py",), CUDA)
MNIST_TORCH_DDP = Script(f"{AWS}@a75d5f25", MNIST, "9968351753bf", ("model_def.py",), edits=(*CUDA, *TORCH_DDP))
MNIST_HEAD = Script(f"{AWS}@2d519b52", HEAD_MNIST, "5b2be043fae9", ("model_def.py",), CUDA)
PT_MNIST = Script(
    f"{AWS}@de48dae6", f"{PYTORCH}/model_parallel/mnist/utils/pt_mnist.py", "6208707ed932", edits=(*CUDA, *S3)
)
GPT_SIMPLE = Script(
    f"{AWS}@01dbfb67",
    f"{PYTORCH}/model_parallel/gpt2/train_gpt_simple.py",
    "ac2abb3a0039",
    ("data_pipeline.py", "learning_rates.py", "memory_tracker.py", "sharded_data_parallel_checkpoint.py"),
    CUDA,
)
TRAIN = Script(f"{PACKT}@2d565cc3", "Chapter06/src/train.py", "e82ac8680c10", edits=CUDA)
TRAIN_SMP = Script(f"{PACKT}@2d565cc3", "Chapter06/src/train_smp.py", "13046e2fd42f", edits=CUDA)

_MNIST_LOSS = r"(?:Loss|Average loss): ([0-9.]+|nan)"
_PACKT_LOSS = r"(?:loss|train_loss|val_loss) ?: ([0-9.]+|nan)"
_DIVIDES_BY_ZERO = r"ZeroDivisionError: integer (division or modulo|modulo) by zero"
_EIGHTHS = "batch_size //= world_size // 8"
_GPT_NOTE = "4 layers with hidden width 64, without tensor parallelism"
_SHORT = {"epochs": "2"}
_CHAPTER = {
    "partitions": 1,
    "placement_strategy": "spread",
    "pipeline": "interleaved",
    "optimize": "speed",
    "ddp": True,
}
_TWO = {"partitions": 2, "microbatches": 4, "ddp": True}
# As in the notebook of train_gpt_simple.py, without tensor parallelism and fp16.
_GPT = {
    **{"ddp": True, "tensor_parallel_degree": 1, "partitions": 2, "microbatches": 2, "shard_optimizer_state": False},
    **{"prescaled_batch": False, "fp16": False, "optimize": "speed", "auto_partition": False, "default_partition": 0},
}
GPT_SMALL = {
    **{"max_context_width": "32", "vocab_size": "128", "hidden_width": "64", "num_layers": "4", "num_heads": "4"},
    **{"resid_pdrop": "0.0", "embd_pdrop": "0.0", "attn_pdrop": "0.0", "summary_first_pdrop": "0.0"},
    **{"use_distributed_transformer": "0", "pipeline_parallel_degree": "2", "microbatches": "2", "max_steps": "8"},
    **{"train_batch_size": "4", "val_batch_size": "4", "prescaled_batch": "0", "manual_partition": "1"},
    **{"lr": "1e-3", "min_lr": "1e-5", "lr_decay_iters": "100", "validation_freq": "4", "validation_batches": "2"},
    **{"same_seed": "1", "activation_checkpointing": "1", "activation_strategy": "each"},
}
_GPT_LOSS = r"(?:Loss|Validation loss): ([0-9.]+|nan)"

BATCH = 4
_EXAMPLE = {
    **{"do_train": "True", "do_eval": "True", "output_dir": "/opt/ml/model", "max_steps": "5", "save_strategy": "no"},
    **{"per_device_train_batch_size": str(BATCH), "disable_tqdm": "True"},
    "model_name_or_path": "/opt/ml/input/data/model",
}


def _files(suffix: str) -> dict[str, str]:
    return {f"{name}_file": f"/opt/ml/input/data/{name}/{name}.{suffix}" for name in ("train", "validation")}


_QA = {**_EXAMPLE, **_files("json"), "max_seq_length": "128", "doc_stride": "64"}
_GLUE = {**_EXAMPLE, **_files("csv"), "max_seq_length": "64"}
_SCORES = r"(?:eval_accuracy|eval_exact_match|eval_f1|train_loss)\s+= +(\S+)$"
RUN_QA, RUN_GLUE = "question-answering/run_qa.py", "text-classification/run_glue.py"


def _examples(version: str, image: str) -> tuple[Run, ...]:
    """transformers' own run_qa.py and run_glue.py of a version: two ranks on one host, then on two hosts."""
    source, folder = f"{TRANSFORMERS}@{version}", "examples/pytorch"
    qa = Script(source, f"{folder}/{RUN_QA}", helpers=("trainer_qa.py", "utils_qa.py"))
    glue = Script(source, f"{folder}/{RUN_GLUE}")
    return tuple(
        Run(script, _SCORES, image, "mpi", 2, hosts, {}, arguments, data, "demo", batch=BATCH)
        for script, arguments, data in ((qa, _QA, "json"), (glue, _GLUE, "csv"))
        for hosts in (1, 2)
    )


# transformers 4.26 rejects notebook 09; the failure names the argument to add.
_REFUSED = r"^ValueError: --load_best_model_at_end requires the save and eval strategy to match"
_ADD = r'give TrainingArguments save_strategy="epoch" as well$'
_WITH_SAVE_STRATEGY = ('evaluation_strategy="epoch",', 'evaluation_strategy="epoch", save_strategy="epoch",')
_WITHOUT_PUSH = """
import runpy
import transformers
transformers.Trainer.push_to_hub = lambda trainer: print("push_to_hub: left out")
runpy.run_path("train.py", run_name="__main__")
"""
_ONE_EPOCH = {"epochs": "1", "train_batch_size": str(BATCH), "eval_batch_size": "8"}
_NAME, _ID = {"model_name": "/opt/ml/input/data/model"}, {"model_id": "/opt/ml/input/data/model"}
_SPOT = {**_ONE_EPOCH, **_ID, "output_dir": "/opt/ml/checkpoints", "fp16": "True", "learning_rate": "3e-5"}
_HUB = {
    **{**_ONE_EPOCH, **_ID, "fp16": "True"},
    **{"push_to_hub": "", "hub_model_id": "films", "hub_strategy": "every_save"},
}
_VIT = {**_NAME, "num_train_epochs": "1", "per_device_train_batch_size": str(BATCH)}
_ACCURACY = r"'eval_accuracy': ([0-9.]+)"


def _notebook(folder: str, *edits: tuple[str, str]) -> Script:
    return Script(NOTEBOOKS, f"sagemaker/{folder}/scripts/train.py", edits=edits)


_FIRST = _notebook("01_getting_started_pytorch")
_SPOTS = _notebook("05_spot_instances")
_METRICS = _notebook("06_sagemaker_metrics")
_PUSH = _notebook("14_train_and_push_to_hub")
_IMAGES = "09_image_classification_vision_transformer"
_TEXT: dict[str, Any] = {"image": OLDER, "data": "text", "model": "demo", "batch": BATCH, "figures": _ACCURACY}
_IMAGE: dict[str, Any] = {**_TEXT, "data": "image", "model": "vit", "arguments": _VIT}

_SMP_GLUE = {
    **_GLUE,
    **{"max_steps": "6", "logging_steps": "1", "per_device_train_batch_size": "16", "max_grad_norm": "0"},
    "learning_rate": "1e-3",
}
_SMP_OPTIONS = {"microbatches": 4, "placement_strategy": "spread", "pipeline": "interleaved", "optimize": "speed"}
_SMP_FILE = Script(f"{TRANSFORMERS}@820c46a7", f"examples/pytorch/{RUN_GLUE}", "4437aa188b66")


def smp_run(script: Script, ranks: int, figures: str, parameters: Mapping[str, object], **more: Any) -> Run:
    """A job with the model parallel library and generated tokens."""
    return Run(script, way="modelparallel", ranks=ranks, figures=figures, parameters=parameters, data="tokens", **more)


def _smddp(script: Script, ranks: int, figures: str, **more: Any) -> Run:
    return Run(script, way="dataparallel", ranks=ranks, figures=figures, data="tokens", **{"arguments": _SHORT, **more})


_LR = {**_SHORT, "batch_size": "8", "lr": "1e-3"}
RUNS = (
    *_examples("v4.57.3", CURRENT),
    *_examples("820c46a7", OLDER),
    Run(_FIRST, arguments={**_ONE_EPOCH, **_NAME}, **_TEXT),
    Run(_SPOTS, arguments=_SPOT, checkpoints="spot", **_TEXT),
    Run(_SPOTS, arguments={**_SPOT, "epochs": "2"}, checkpoints="spot", note="again, from its checkpoints", **_TEXT),
    Run(_SPOTS, way="mpi", ranks=2, arguments=_SPOT, **_TEXT),
    Run(_METRICS, arguments={**_ONE_EPOCH, **_NAME, "checkpoints": "/opt/ml/checkpoints/"}, **_TEXT),
    Run(_PUSH, arguments=_HUB, program=_WITHOUT_PUSH, note="without the push", **_TEXT),
    Run(_notebook(_IMAGES), fails=f"{_REFUSED}.*{_ADD}", **_IMAGE),
    Run(_notebook(_IMAGES, _WITH_SAVE_STRATEGY), note="with save_strategy", **_IMAGE),
    *(
        Run(
            _SMP_FILE,
            _SCORES,
            OLDER,
            "modelparallel",
            size,
            1,
            {**_SMP_OPTIONS, "partitions": size, "ddp": True},
            _SMP_GLUE,
            "csv",
            "demo",
            batch=16,
        )
        for size in (4, 2)
    ),
    smp_run(PT_MNIST, 4, _MNIST_LOSS, _TWO, losses=(2.30978, 0.4287)),
    smp_run(PT_MNIST, 4, _MNIST_LOSS, {**_TWO, "deterministic_server": True}, losses=(2.30978, 0.4287)),
    smp_run(
        PT_MNIST,
        4,
        _MNIST_LOSS,
        {**_TWO, "pipeline": "simple", "placement_strategy": "spread"},
        losses=(2.30978, 0.4287),
    ),
    smp_run(PT_MNIST, 2, _MNIST_LOSS, {**_TWO, "ddp": False, "deterministic_server": True}, losses=(2.30978, 0.0346)),
    smp_run(
        PT_MNIST, 8, _MNIST_LOSS, {**_TWO, "partitions": 4, "deterministic_server": True}, losses=(2.30978, 0.4287)
    ),
    smp_run(GPT_SIMPLE, 2, _GPT_LOSS, _GPT, arguments=GPT_SMALL, losses=(4.88271, 4.28877), note=_GPT_NOTE),
    smp_run(GPT_SIMPLE, 4, _GPT_LOSS, _GPT, arguments=GPT_SMALL, losses=(4.88683, 4.17026), note=_GPT_NOTE),
    smp_run(
        TRAIN_SMP,
        8,
        _PACKT_LOSS,
        _CHAPTER,
        arguments={**_LR, "lr": "3e-5"},
        losses=(0.342381, 0.7679),
        note="as published",
    ),
    smp_run(TRAIN_SMP, 2, _PACKT_LOSS, _CHAPTER, arguments=_LR, losses=(0.344037, 0.5683)),
    smp_run(
        TRAIN_SMP,
        2,
        _PACKT_LOSS,
        {**_CHAPTER, "partitions": 2, "microbatches": 2},
        arguments=_LR,
        fails=r"Rank 0 calls the step function test_step as its step \d+, rank 1 calls train_step",
        note="rank 0 alone evaluates, so that ranks call different steps",
    ),
    _smddp(
        TRAIN,
        8,
        _PACKT_LOSS,
        arguments={**_LR, "batch_size": "4"},
        losses=(0.554039, 0.6806),
        alone=True,
        note="never wraps its model",
    ),
    _smddp(TRAIN, 4, _PACKT_LOSS, fails=_DIVIDES_BY_ZERO, note=_EIGHTHS),
    _smddp(MNIST_V1, 8, _MNIST_LOSS, losses=(2.29742, 0.9198)),
    _smddp(MNIST_V1, 4, _MNIST_LOSS, fails=_DIVIDES_BY_ZERO, note=_EIGHTHS),
    _smddp(MNIST_V2, 8, _MNIST_LOSS, losses=(2.29742, 0.9198)),
    _smddp(MNIST_TORCH_DDP, 2, _MNIST_LOSS, losses=(2.34388, 0.0641)),
    _smddp(MNIST_HEAD, 8, _MNIST_LOSS, losses=(2.29742, 0.9198)),
)

NOT_RUN = {
    f"{AWS}@de48dae6 {PYTORCH}/model_parallel/bert/bert_example/sagemaker_smp_pretrain.py": (
        "calls apex's compiled amp_C and apex_C on gradients, and FusedLAMB"
    ),
    f"{AWS}@68615341 {PYTORCH}/model_parallel/gpt-j/train_gptj_smp_tensor_parallel_script.py": (
        "it imports smp.nn.huggingface.gptj and reads model.module.module; gpt-j/train.py, its later version, runs"
    ),
    f"{AWS}@a75d5f25 {PYTORCH}/data_parallel/fully_sharded_data_parallel/falcon/scripts/train.py": (
        "a model of 7 billion parameters from the hub, bitsandbytes"
    ),
    f"{PACKT}@2d565cc3 Chapter12/code/train.py": "it loads a hard-coded model of the Hugging Face hub",
}
"""Published scripts for smdistributed that are not run → why."""
