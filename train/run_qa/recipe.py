"""The question-answering recipe: its own arguments, and the completion of a job's settings.

`Recipe` holds the arguments that the well-known `run_qa.py` takes next to transformers' TrainingArguments, under the
same names. `complete` is a pure function from the hyperparameters and the rank's environment to all settings of the job
and lines for the log. Each change of a given value is logged.
"""

import math
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from berth.contract.hyperparameters import HyperparameterError, Option, options_of, refusal
from berth.contract.splits import SPLITS
from berth.qa.spans import EVALUATION, Decoding
from berth.runtime.config_files import checkpoint_folder
from berth.runtime.engines.quantization import MAX_F1_LOSS
from berth.train.run_qa.device import RankEnvironment, choose_backend, fit_device

SCRATCH = Path(tempfile.gettempdir()) / "berth-run-qa"
DEFAULT_TIMEOUT = 1800  # seconds for a collective; transformers' default
KEPT_CHECKPOINTS = 2  # the older one is in S3 when the newer is written; plus one if the best must be kept
SAVE_MINUTES = 10.0  # default, if neither save_minutes nor a save_ setting of transformers is given
METRICS = ("f1", "exact_match", "loss")
MEASURING_SCHEDULERS = ("reduce_lr_on_plateau", "greedy")  # learning rates that follow the evaluation
_COUNTS = (
    *("max_train_samples", "max_eval_samples", "max_predict_samples", "n_best_size", "max_answer_length"),
    *("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"),
)
_SEEDS = 1 << 32  # numpy's limit
_RANGES: dict[str, tuple[float, float, str]] = {
    **dict.fromkeys(_COUNTS, (1, math.inf, "at least 1")),
    **dict.fromkeys(("seed", "data_seed"), (0, _SEEDS, f"from 0 to {_SEEDS - 1}")),
    "save_minutes": (0, math.inf, "at least 0 and finite (0: no checkpoints by time)"),
    "int8_max_f1_loss": (0, math.inf, "at least 0 and finite"),
    "log_seconds": (0, math.inf, "at least 0 and finite (0: a line for each step)"),
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), (0, 1, "at least 0 and below 1")),
}
"""Hyperparameter → its least value, the value that it must be below, and the text for the error."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe's own arguments. Lengths are tokens, `*_samples` are questions."""

    model_name_or_path: str | None = None
    config_name: str | None = None
    tokenizer_name: str | None = None
    cache_dir: str | None = None
    model_revision: str | None = None
    token: str | None = None
    trust_remote_code: bool = False
    hidden_dropout_prob: float | None = None
    attention_probs_dropout_prob: float | None = None

    dataset_name: str | None = None
    dataset_config_name: str | None = None
    train_file: str | None = None
    validation_file: str | None = None
    test_file: str | None = None
    max_train_samples: int | None = None
    max_eval_samples: int | None = None
    max_predict_samples: int | None = None

    max_seq_length: int = 384
    doc_stride: int = 128
    pad_to_max_length: bool = False
    version_2_with_negative: bool = False
    null_score_diff_threshold: float = 0.0
    n_best_size: int = 20
    max_answer_length: int = 30

    overwrite_output_dir: bool = False
    save_minutes: float | None = None
    log_seconds: float = 10.0
    logging_dir: str | None = None

    export_openvino: bool = True
    export_int8: bool = False
    int8_max_f1_loss: float = MAX_F1_LOSS
    int8_few_questions: bool = False

    def decoding(self) -> Decoding:
        """How an evaluation turns logits into answers."""
        return replace(
            EVALUATION,
            n_best=self.n_best_size,
            max_answer_tokens=self.max_answer_length,
            no_answer=self.version_2_with_negative,
            null_threshold=self.null_score_diff_threshold,
        )


class Paths:
    """SageMaker's files and folders, below `/opt/ml` or below SAGEMAKER_BASE_DIR."""

    def __init__(self, base: Path = Path("/opt/ml")) -> None:
        self.base = base
        self.hyperparameters = base / "input/config/hyperparameters.json"
        self.input_data_config = base / "input/config/inputdataconfig.json"  # the channels, and how each is delivered
        self.tensorboard_config = base / "input/config/tensorboardoutputconfig.json"  # if the job has a TensorBoard
        self.channels = base / "input/data"  # one folder per channel
        self.model = base / "model"  # packed into model.tar.gz
        self.output_data = base / "output/data"  # packed into output.tar.gz
        self.tensorboard = base / "output/tensorboard"  # the default folder for TensorBoard's events

    @property
    def checkpoints(self) -> Path:
        """The folder that SageMaker copies to S3 while a job with a checkpoint_s3_uri runs. Raises JobError."""
        return checkpoint_folder(self.base)


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """All settings of a job.

    `keeps_checkpoints`: a later job may find this one's `checkpoints`; if SageMaker `uploads_checkpoints`, it will.
    `save_seconds`: between checkpoints by time, in addition to those that `training` asks for; 0: none. `notes` and
    `warnings` are lines for the log.
    """

    recipe: Recipe
    training: dict[str, Any]  # keyword arguments of TrainingArguments
    backend: str
    timeout: int
    checkpoints: Path
    resume: bool | str
    keeps_checkpoints: bool = False
    uploads_checkpoints: bool = False
    save_seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def options(training_arguments: type) -> dict[str, Option]:
    """Every hyperparameter that run_qa accepts."""
    known = options_of(training_arguments, Recipe)
    # transformers declares these as text, but they may also be true or false.
    for name in ("fsdp", "resume_from_checkpoint"):
        if name in known:
            known[name] = replace(known[name], type=bool | str | None)
    return known


def complete(
    values: Mapping[str, Any], paths: Paths, env: RankEnvironment, problems: Mapping[str, str] | None = None
) -> TrainingSettings:
    """Complete the typed hyperparameters `values` to the settings of a job.

    problems: earlier faults, by hyperparameter. Raises HyperparameterError with these and all values out of range, or
    if two values contradict each other.
    """
    own = {spec.name for spec in fields(Recipe)}
    recipe = Recipe(**{name: value for name, value in values.items() if name in own})
    training = {name: value for name, value in values.items() if name not in own}
    notes: list[str] = []
    warnings: list[str] = []
    unread = {name.replace("-", "_") for name in problems or {}}
    if faults := [*(problems or {}).values(), *_out_of_range(recipe, training, env, unread)]:
        raise refusal(faults)
    _tasks(training, recipe, env, notes)
    _int8(training, recipe, notes)
    _folders(training, paths, notes)
    fit_device(training, env, warnings)
    backend = choose_backend(training, env, warnings)
    resume = training.pop("resume_from_checkpoint", None)
    if resume is None:
        resume = not recipe.overwrite_output_dir
        if recipe.overwrite_output_dir:
            notes.append(
                "overwrite_output_dir: training starts from the beginning, checkpoints of other jobs are not used"
            )
    save_minutes = _strategies(training, recipe.save_minutes, env, notes)
    saves = training["save_strategy"] != "no"
    checkpoints = Path(training["output_dir"])
    if not saves:
        # Trainer always creates this folder; SageMaker's checkpoint folder must not appear if nothing is saved.
        training["output_dir"] = str(SCRATCH)
    _loading(training, recipe, notes)
    _logging(training, env, warnings)
    return TrainingSettings(
        recipe=recipe,
        training=training,
        backend=backend,
        timeout=training.get("ddp_timeout", DEFAULT_TIMEOUT),
        checkpoints=checkpoints,
        resume=resume,
        keeps_checkpoints=saves and (env.keeps_checkpoints or checkpoints != paths.checkpoints),
        uploads_checkpoints=saves and env.keeps_checkpoints and checkpoints == paths.checkpoints,
        save_seconds=60 * save_minutes,
        notes=notes,
        warnings=warnings,
    )


def _out_of_range(
    recipe: Recipe, training: Mapping[str, Any], env: RankEnvironment, unread: Collection[str]
) -> list[str]:
    """The faults of values with the right type. `unread`: names whose value could not be read, so only the default is
    known.
    """
    values = {**asdict(recipe), **training}
    problems = [
        f"{name} is {value} and must be {text}"
        for name, (least, below, text) in _RANGES.items()
        if (value := values.get(name)) is not None and not least <= value < below  # also refuses NaN
    ]
    if training.get("fsdp") and env.world_size == 1:
        problems.append("fsdp shards the model over ranks, and this job has one: leave it out, or run more ranks")
    if "max_seq_length" not in unread and not 0 <= recipe.doc_stride < recipe.max_seq_length:
        problems.append(
            f"doc_stride is {recipe.doc_stride} and must be from 0 to below max_seq_length, {recipe.max_seq_length}"
        )
    return problems


def _tasks(training: dict[str, Any], recipe: Recipe, env: RankEnvironment, notes: list[str]) -> None:
    """Set do_train and do_eval if they are not given: train and evaluate if there is data for it."""
    tasks = [split.task for split in SPLITS.values()]
    requested = any(training.get(task) for task in tasks)
    if "do_train" not in training:
        training["do_train"] = bool(
            env.channels.intersection(SPLITS["train"].channels)
            or recipe.train_file
            or (recipe.dataset_name and not requested)
        )
    if not training["do_train"] and training.pop("load_best_model_at_end", False):
        notes.append("load_best_model_at_end: ignored, this job does not train")
    meanwhile = (
        training.get("eval_strategy", "no") != "no"
        or training.get("load_best_model_at_end", False)
        or training.get("lr_scheduler_type") in MEASURING_SCHEDULERS
    )
    if "do_eval" not in training:
        training["do_eval"] = bool(
            env.channels.intersection(SPLITS["validation"].channels)
            or recipe.validation_file
            or meanwhile
            or (recipe.dataset_name and not requested)
        )
    elif meanwhile and not training["do_eval"]:
        training["do_eval"] = True
        notes.append("do_eval: true, because the settings ask for evaluation during training")
    if not any(training.get(task) for task in tasks):
        raise HyperparameterError(
            "There is nothing to do: pass SQuAD files as channel train (and validation), or dataset_name, "
            "and leave do_train and do_eval out or set one of them to true."
        )
    enabled = [task.removeprefix("do_") for task in tasks if training.get(task)]
    notes.append(f"tasks: {', '.join(enabled)}")


def _int8(training: Mapping[str, Any], recipe: Recipe, notes: list[str]) -> None:
    """Refuse settings with which the int8 export would fail after the training."""
    if not recipe.export_int8:
        return
    if not recipe.export_openvino:
        raise HyperparameterError(
            "export_int8 quantises the graph that export_openvino writes, and export_openvino is false: leave out one "
            "of the two."
        )
    if not training["do_train"]:
        notes.append("export_int8: ignored, this job does not train (`build.py quantize` takes an existing model)")
    elif not training["do_eval"]:
        raise HyperparameterError(
            "export_int8 is measured on validation questions, and this job does not evaluate: pass SQuAD files as "
            "channel validation, or validation_file, or leave export_int8 out."
        )


def _folders(training: dict[str, Any], paths: Paths, notes: list[str]) -> None:
    """Set the checkpoint folder. It is never the model folder: all checkpoints would be packed into model.tar.gz."""
    output_dir = training.get("output_dir")
    folder = Path(output_dir).expanduser() if output_dir else paths.checkpoints
    # A relative path would be below the job's working directory, which is deleted with the job.
    if not folder.is_absolute() or any(folder.is_relative_to(model) for model in (paths.model, Paths().model)):
        folder = paths.checkpoints
    training["output_dir"] = str(folder)
    if output_dir and str(folder) != output_dir:
        notes.append(f"output_dir: the model goes to {paths.model}, checkpoints go to {folder}")


def _strategies(training: dict[str, Any], save_minutes: float | None, env: RankEnvironment, notes: list[str]) -> float:
    """Set when to evaluate and when to save; returns the minutes between checkpoints by time (0: none)."""
    if training.pop("enable_jit_checkpoint", False):
        notes.append("enable_jit_checkpoint: ignored, because run_qa itself saves when a job is stopped")
    best = training.get("load_best_model_at_end", False)
    if best or training.get("lr_scheduler_type") in MEASURING_SCHEDULERS:
        if "eval_strategy" not in training:
            saving = training.get("save_strategy", "steps" if "save_steps" in training else "epoch")
            training["eval_strategy"] = saving if saving in ("steps", "epoch") else "epoch"
            notes.append(f"eval_strategy: {training['eval_strategy']}, to find the best model")
        training.setdefault("metric_for_best_model", "f1")
    metric = training.get("metric_for_best_model")
    if metric is not None:
        plain = {"exact": "exact_match"}.get(metric.removeprefix("eval_"), metric.removeprefix("eval_"))
        if plain not in METRICS:
            raise HyperparameterError(
                f"metric_for_best_model is {metric!r}, which run_qa does not measure: pass one of {', '.join(METRICS)}."
            )
        training["metric_for_best_model"] = plain
    # transformers' default is logging_steps, which here is a fraction of the job (`_logging`).
    if training.get("eval_strategy") == "steps" and "logging_steps" not in training:
        training.setdefault("eval_steps", training.get("save_steps", 500) if best else 500)
    when_given = "save_strategy" in training or "save_steps" in training
    if "save_strategy" in training or not training["do_train"]:
        training.setdefault("save_strategy", "no")
    elif best:
        training["save_strategy"] = training["eval_strategy"]
    elif "save_steps" in training:
        training["save_strategy"] = "steps"
    elif env.keeps_checkpoints:
        training["save_strategy"] = "epoch"
    else:
        training["save_strategy"] = "no"
    if best and training["save_strategy"] == "steps" and "eval_steps" in training:
        training.setdefault("save_steps", training["eval_steps"])
    if training["save_strategy"] == "no":
        notes.append("checkpoints: none (to write them, set checkpoint_s3_uri of the estimator, or save_strategy)")
        return 0.0
    by_default = env.keeps_checkpoints and not when_given
    if by_default:
        training.setdefault("save_total_limit", KEPT_CHECKPOINTS + bool(best))
    minutes = (SAVE_MINUTES if by_default else 0.0) if save_minutes is None else save_minutes
    often = f" and every {minutes:g} minutes" if minutes else ""
    notes.append(f"checkpoints: {training['save_strategy']}{often}, in {training['output_dir']}")
    return minutes


def _loading(training: dict[str, Any], recipe: Recipe, notes: list[str]) -> None:
    """Set the sampling of windows, and DDP's option for unused parameters."""
    if "train_sampling_strategy" not in training:
        training["train_sampling_strategy"] = "random" if recipe.pad_to_max_length else "group_by_length"
    if recipe.pad_to_max_length:
        notes.append(
            f"pad_to_max_length: every window is padded to {recipe.max_seq_length} tokens; "
            "without it batches are grouped by length, which is about three times as fast"
        )
    # All parameters of a question-answering model are used; DDP's search for unused ones would cost time at each step.
    training.setdefault("ddp_find_unused_parameters", False)


def _logging(training: dict[str, Any], env: RankEnvironment, warnings: list[str]) -> None:
    """Turn off Trainer's progress bars (reporting/ writes lines instead); log about fifty entries to the history."""
    training["disable_tqdm"] = True
    training.setdefault("logging_steps", 0.02)
    # transformers would replace a NaN loss by the mean since the last log, or by 0: it would look like a good loss.
    training.setdefault("logging_nan_inf_filter", False)
    training["logging_first_step"] = training.get("logging_first_step", True)
    # On by default: SageMaker's TensorBoard reads these events (records.tensorboard_folder), and they cost little.
    default = "tensorboard" if training["do_train"] and "tensorboard" in env.reporters else "none"
    requested = training.get("report_to", default)
    names = [requested] if isinstance(requested, str) else list(requested)
    names = sorted(env.reporters) if "all" in names else [name for name in names if name != "none"]
    for name in names:
        if name not in env.reporters:
            warnings.append(f"report_to {name} is not installed in this image: the job continues without it")
    training["report_to"] = [name for name in names if name in env.reporters] or "none"
