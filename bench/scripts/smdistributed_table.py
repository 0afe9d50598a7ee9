"""Which published scripts are written for smdistributed, how each is started, and what is expected of it.

A script's place is FOLDER/SOURCE/path, where SOURCE names a repository and a commit. `blob` is git's name of the
text that was read when a row was written: another text is refused, so that a row says what it says of that one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

AWS = "aws-examples"
PACKT = "packt"
TRANSFORMERS = "transformers"
REPOSITORIES = {
    AWS: "aws/amazon-sagemaker-examples",
    PACKT: "PacktPublishing/Applied-Machine-Learning-and-High-Performance-Computing-on-AWS",
    TRANSFORMERS: "huggingface/transformers",
}
PYTORCH = "training/distributed_training/pytorch"
SETTINGS = "e2e_mask_rcnn_R_50_FPN_1x_8GPU_4bs.yaml"

CUDA = (
    ('torch.device("cuda")', 'torch.device("cpu")'),
    ('torch.device(f"cuda:{local_rank}")', 'torch.device("cpu")'),
    ("torch.cuda.set_device(", "(lambda device: None)("),
    ("model.cuda(local_rank)", "model.cpu()"),
    ("if not torch.cuda.is_available():", "if False:"),
)
"""Calls that need a GPU, and what stands for them where there is none."""
OF_TORCH = (("device_ids=[local_rank]", "device_ids=None"),)
"""The same of torch's own DDP; SMDDP version 1's takes it as it is."""
S3 = (("sync_local_checkpoints_to_s3(local_path=", "(lambda **arguments: None)(local_path="),)


@dataclass(frozen=True)
class Script:
    """A published text: where it lies, which other files of its folder it reads, and what has to be edited of it."""

    source: str
    path: str
    blob: str
    beside: tuple[str, ...] = ()
    edits: tuple[tuple[str, str], ...] = CUDA

    @property
    def repository(self) -> str:
        return REPOSITORIES[self.source.partition("@")[0]]

    @property
    def commit(self) -> str:
        return self.source.partition("@")[2]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Run:
    """A script, started in some way.

    parameters: of the model parallel library, as mp_parameters has them, none for the data parallel one. arguments: its
    hyperparameters, in place of hours. loss: finds the figures of a line that rank 0 prints. fails: finds the reason
    that it must fail with; none where it must end. alone: the script never makes its replicas agree, so that each is
    compared with a replica that trains by itself; their weights must differ, and the log must say so.
    """

    script: Script
    ranks: int
    loss: str
    parameters: Mapping[str, object] | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    fails: str = ""
    alone: bool = False
    note: str = ""

    @property
    def replicas(self) -> int:
        partitions = (self.parameters or {}).get("partitions", 1)
        assert isinstance(partitions, int)
        return self.ranks // partitions

    @property
    def distribution(self) -> str:
        """What the estimator asks for, in words."""
        if self.parameters is None:
            return "dataparallel"
        return "modelparallel " + ", ".join(f"{key} {json.dumps(value)}" for key, value in self.parameters.items())


MNIST = f"{PYTORCH}/data_parallel/mnist/code/train_pytorch_smdataparallel_mnist.py"
# The folder's name begins with six spaces.
HEAD_MNIST = (
    "      build_and_train_models/sm-distributed_data_parallelism_pytorch/code/train_pytorch_smdataparallel_mnist.py"
)
MNIST_V1 = Script(f"{AWS}@de48dae6", MNIST, "b142c298ed15", ("model_def.py",))
MNIST_V2 = Script(f"{AWS}@01dbfb67", MNIST, "99438a3da3c0", ("model_def.py",))
MNIST_EITHER = Script(f"{AWS}@a75d5f25", MNIST, "9968351753bf", ("model_def.py",), edits=(*CUDA, *OF_TORCH))
MNIST_HEAD = Script(f"{AWS}@2d519b52", HEAD_MNIST, "5b2be043fae9", ("model_def.py",))
MASK_RCNN = Script(
    f"{AWS}@de48dae6",
    f"{PYTORCH}/data_parallel/maskrcnn/train_pytorch_smdataparallel_maskrcnn.py",
    "3a97cc4ef081",
    (SETTINGS,),
)
PT_MNIST = Script(
    f"{AWS}@de48dae6", f"{PYTORCH}/model_parallel/mnist/utils/pt_mnist.py", "6208707ed932", edits=(*CUDA, *S3)
)
GPT_SIMPLE = Script(
    f"{AWS}@01dbfb67",
    f"{PYTORCH}/model_parallel/gpt2/train_gpt_simple.py",
    "ac2abb3a0039",
    ("data_pipeline.py", "learning_rates.py", "memory_tracker.py", "sharded_data_parallel_checkpoint.py"),
)
TRAIN = Script(f"{PACKT}@2d565cc3", "Chapter06/src/train.py", "e82ac8680c10")
TRAIN_SMP = Script(f"{PACKT}@2d565cc3", "Chapter06/src/train_smp.py", "13046e2fd42f")

_MNIST_LOSS = r"(?:Loss|Average loss): ([0-9.]+|nan)"
_PACKT_LOSS = r"(?:loss|train_loss|val_loss) ?: ([0-9.]+|nan)"
_DIVIDES_BY_ZERO = r"ZeroDivisionError: integer (division or modulo|modulo) by zero"
_SHORT = {"epochs": "2"}
_CHAPTER = {
    "partitions": 1,
    "placement_strategy": "spread",
    "pipeline": "interleaved",
    "optimize": "speed",
    "ddp": True,
}
_TWO = {"partitions": 2, "microbatches": 4, "ddp": True}
# As the notebook of train_gpt_simple.py sends them, but for tensor parallelism and fp16.
_GPT = {
    **{"ddp": True, "tensor_parallel_degree": 1, "partitions": 2, "microbatches": 2, "shard_optimizer_state": False},
    **{"prescaled_batch": False, "fp16": False, "optimize": "speed", "auto_partition": False, "default_partition": 0},
}
_GPT_SMALL = {
    **{"max_context_width": "32", "vocab_size": "128", "hidden_width": "64", "num_layers": "4", "num_heads": "4"},
    **{"resid_pdrop": "0.0", "embd_pdrop": "0.0", "attn_pdrop": "0.0", "summary_first_pdrop": "0.0"},
    **{"use_distributed_transformer": "0", "pipeline_parallel_degree": "2", "microbatches": "2", "max_steps": "8"},
    **{"train_batch_size": "4", "val_batch_size": "4", "prescaled_batch": "0", "manual_partition": "1"},
    **{"lr": "1e-3", "min_lr": "1e-5", "lr_decay_iters": "100", "validation_freq": "4", "validation_batches": "2"},
    **{"same_seed": "1", "activation_checkpointing": "1", "activation_strategy": "each"},
}
_GPT_LOSS = r"(?:Loss|Validation loss): ([0-9.]+|nan)"

RUNS = (
    Run(PT_MNIST, 4, _MNIST_LOSS, _TWO),
    Run(PT_MNIST, 4, _MNIST_LOSS, {**_TWO, "deterministic_server": True}),
    Run(PT_MNIST, 4, _MNIST_LOSS, {**_TWO, "pipeline": "simple", "placement_strategy": "spread"}),
    Run(PT_MNIST, 2, _MNIST_LOSS, {**_TWO, "ddp": False, "deterministic_server": True}),
    Run(PT_MNIST, 8, _MNIST_LOSS, {**_TWO, "partitions": 4, "deterministic_server": True}),
    Run(GPT_SIMPLE, 2, _GPT_LOSS, _GPT, _GPT_SMALL, note="4 layers of 64, without tensor parallelism"),
    Run(GPT_SIMPLE, 4, _GPT_LOSS, _GPT, _GPT_SMALL, note="4 layers of 64, without tensor parallelism"),
    Run(TRAIN_SMP, 8, _PACKT_LOSS, _CHAPTER, {**_SHORT, "batch_size": "8", "lr": "3e-5"}, note="as published"),
    Run(TRAIN_SMP, 2, _PACKT_LOSS, _CHAPTER, {**_SHORT, "batch_size": "8", "lr": "1e-3"}),
    Run(
        TRAIN_SMP,
        2,
        _PACKT_LOSS,
        {**_CHAPTER, "partitions": 2, "microbatches": 2},
        {**_SHORT, "batch_size": "8", "lr": "1e-3"},
        fails=r"Rank 0 calls the step function test_step as its step \d+, rank 1 calls train_step",
        note="rank 0 alone evaluates, so that ranks call different steps",
    ),
    Run(
        TRAIN,
        8,
        _PACKT_LOSS,
        None,
        {**_SHORT, "batch_size": "4", "lr": "1e-3"},
        alone=True,
        note="never wraps its model",
    ),
    Run(TRAIN, 4, _PACKT_LOSS, None, _SHORT, fails=_DIVIDES_BY_ZERO, note="batch_size //= world_size // 8"),
    Run(MNIST_V1, 8, _MNIST_LOSS, None, _SHORT),
    Run(MNIST_V1, 4, _MNIST_LOSS, None, _SHORT, fails=_DIVIDES_BY_ZERO, note="batch_size //= world_size // 8"),
    Run(MASK_RCNN, 2, r"iter: \d+ loss: ([0-9.]+|nan)", None, {"config-file": SETTINGS, "skip-test": ""}),
    Run(MNIST_V2, 8, _MNIST_LOSS, None, _SHORT),
    Run(MNIST_EITHER, 2, _MNIST_LOSS, None, _SHORT),
    Run(MNIST_HEAD, 8, _MNIST_LOSS, None, _SHORT),
)

NOT_RUN = {
    f"{AWS}@de48dae6 {PYTORCH}/model_parallel/bert/bert_example/sagemaker_smp_pretrain.py": (
        "calls apex's compiled amp_C and apex_C on gradients, and FusedLAMB"
    ),
    f"{AWS}@01dbfb67 {PYTORCH}/model_parallel/gpt2/train_gpt_simple.py with the notebook's own options": (
        "tensor_parallel_degree 4 and shard_optimizer_state: refused for now"
    ),
    f"{AWS}@a75d5f25 {PYTORCH}/model_parallel/falcon/train.py": "sharded data parallelism: refused for now",
    f"{AWS}@a75d5f25 {PYTORCH}/data_parallel/fully_sharded_data_parallel/falcon/scripts/train.py": (
        "a model of 7 billion parameters from the hub, bitsandbytes"
    ),
    f"{PACKT}@2d565cc3 Chapter12/code/train.py": "its text names a model of the hub",
    f"{TRANSFORMERS}@820c46a7 run_qa.py and run_summarization.py with SMDDP": "no reference in one process yet",
}
"""What else asks for the library, and why it is not run."""
