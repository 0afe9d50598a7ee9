"""The question-answering recipe: its own arguments, and how a job's settings are completed.

`Recipe` holds what the well-known `run_qa.py` takes next to transformers' TrainingArguments, under the same names.
`complete` is a pure function: what was given and what is there in, every setting of the job and lines for the log out.
Nothing that was given is changed without a line.
"""

import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from berth.contract.hyperparameters import HyperparameterError, Option, options_of, refusal
from berth.contract.splits import SPLITS
from berth.qa.spans import EVALUATION, Decoding
from berth.runtime.config_files import checkpoint_folder
from berth.runtime.engines.quantization import MAX_F1_LOSS
from berth.train.run_qa.device import RankEnvironment, choose_backend, fit_device

SCRATCH = Path(tempfile.gettempdir()) / "berth-run-qa"
DEFAULT_TIMEOUT = 1800  # seconds that a collective may take, transformers' own default
KEPT_CHECKPOINTS = 2  # the older one is in S3 when the newer is written; where the best must stay, that is one more
SAVE_MINUTES = 10.0  # where nothing else says when
METRICS = ("f1", "exact_match", "loss")
MEASURING_SCHEDULERS = ("reduce_lr_on_plateau", "greedy")  # learning rates that follow the evaluation


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

    @property
    def limits(self) -> dict[str, int | None]:
        """The most questions of each split that are used."""
        most = (self.max_train_samples, self.max_eval_samples, self.max_predict_samples)
        return dict(zip(SPLITS, most, strict=True))

    def decoding(self) -> Decoding:
        """How an evaluation makes answers of logits."""
        return replace(
            EVALUATION,
            n_best=self.n_best_size,
            max_answer_tokens=self.max_answer_length,
            no_answer=self.version_2_with_negative,
            null_threshold=self.null_score_diff_threshold,
        )


@dataclass(frozen=True, slots=True)
class Paths:
    """Where SageMaker puts things, below `/opt/ml` or wherever SAGEMAKER_BASE_DIR says."""

    base: Path = Path("/opt/ml")

    @property
    def hyperparameters(self) -> Path:
        """The hyperparameters as SageMaker wrote them."""
        return self.base / "input/config/hyperparameters.json"

    @property
    def input_data_config(self) -> Path:
        """Which channels there are, and how each is delivered."""
        return self.base / "input/config/inputdataconfig.json"

    @property
    def channels(self) -> Path:
        """One folder per channel."""
        return self.base / "input/data"

    @property
    def model(self) -> Path:
        """What becomes model.tar.gz."""
        return self.base / "model"

    @property
    def checkpoints(self) -> Path:
        """What SageMaker copies to S3 while the job runs, if the job has a checkpoint_s3_uri. Raises JobError."""
        return checkpoint_folder(self.base)

    @property
    def tensorboard_config(self) -> Path:
        """Where SageMaker's TensorBoard takes events from, in a job that has a TensorBoardOutputConfig."""
        return self.base / "input/config/tensorboardoutputconfig.json"

    @property
    def tensorboard(self) -> Path:
        """The default of a TensorBoardOutputConfig."""
        return self.base / "output/tensorboard"

    @property
    def output_data(self) -> Path:
        """What becomes output.tar.gz."""
        return self.base / "output/data"


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Everything that a job runs by.

    `keeps_checkpoints`: a next job may find what this one leaves in `checkpoints`, and does so where SageMaker
    `uploads_checkpoints`. `save_seconds`: between checkpoints, next to what `training` says; 0: none. `notes` and
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
    """Every hyperparameter that run_qa knows."""
    known = options_of(training_arguments, Recipe)
    # Declared as text for the command line's sake, where a yes or no is meant as well.
    for name in ("fsdp", "resume_from_checkpoint"):
        if name in known:
            known[name] = replace(known[name], type=bool | str | None)
    return known


def complete(
    values: Mapping[str, Any], paths: Paths, found: RankEnvironment, problems: Mapping[str, str] | None = None
) -> TrainingSettings:
    """Complete the typed hyperparameters `values` to the settings of a job.

    Raises HyperparameterError that names those out of range, with the `problems` that were found before, by name; or
    where two can't go together.
    """
    own = {spec.name for spec in fields(Recipe)}
    recipe = Recipe(**{name: value for name, value in values.items() if name in own})
    training = {name: value for name, value in values.items() if name not in own}
    notes: list[str] = []
    warnings: list[str] = []
    unread = {name.replace("-", "_") for name in problems or {}}
    if faults := [*(problems or {}).values(), *_out_of_range(recipe, training, found, unread)]:
        raise refusal(faults)
    _tasks(training, recipe, found, notes)
    _int8(training, recipe, notes)
    _folders(training, paths, notes)
    fit_device(training, found, warnings)
    backend = choose_backend(training, found, warnings)
    resume = training.pop("resume_from_checkpoint", None)
    if resume is None:
        resume = not recipe.overwrite_output_dir
        if recipe.overwrite_output_dir:
            notes.append(
                "overwrite_output_dir: training starts from the beginning, checkpoints of other jobs are not used"
            )
    save_minutes = _strategies(training, recipe.save_minutes, found, notes)
    saves = training["save_strategy"] != "no"
    checkpoints = Path(training["output_dir"])
    if not saves:
        # Trainer makes this folder whatever comes; the one that SageMaker watches must not appear for nothing.
        training["output_dir"] = str(SCRATCH)
    _loading(training, recipe, notes)
    _logging(training, found, warnings)
    return TrainingSettings(
        recipe=recipe,
        training=training,
        backend=backend,
        timeout=training.get("ddp_timeout", DEFAULT_TIMEOUT),
        checkpoints=checkpoints,
        resume=resume,
        keeps_checkpoints=saves and (found.keeps_checkpoints or checkpoints != paths.checkpoints),
        uploads_checkpoints=saves and found.keeps_checkpoints and checkpoints == paths.checkpoints,
        save_seconds=60 * save_minutes,
        notes=notes,
        warnings=warnings,
    )


def _out_of_range(
    recipe: Recipe, training: Mapping[str, Any], found: RankEnvironment, unread: Collection[str]
) -> list[str]:
    """What is wrong with values of the right type; `unread` are names of others, of which only the default is known."""
    problems = []
    counts = ("max_train_samples", "max_eval_samples", "max_predict_samples", "n_best_size", "max_answer_length")
    counted = {name: getattr(recipe, name) for name in counts}
    for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
        counted[name] = training.get(name)
    for name, value in counted.items():
        if value is not None and value < 1:
            problems.append(f"{name} is {value} and must be at least 1")
    for name in ("seed", "data_seed"):
        value = training.get(name)
        if value is not None and not 0 <= value < 1 << 32:  # what numpy takes
            problems.append(f"{name} is {value} and must be from 0 to {(1 << 32) - 1}")
    if training.get("fsdp") and found.world_size == 1:
        problems.append("fsdp spreads the model over ranks, and this job has one: leave it out, or run more ranks")
    if "max_seq_length" not in unread and not 0 <= recipe.doc_stride < recipe.max_seq_length:
        problems.append(
            f"doc_stride is {recipe.doc_stride} and must be from 0 to below max_seq_length, {recipe.max_seq_length}"
        )
    if recipe.save_minutes is not None and not 0 <= recipe.save_minutes < float("inf"):
        problems.append(f"save_minutes is {recipe.save_minutes} and must be at least 0, which is never by time")
    if not recipe.int8_max_f1_loss >= 0:  # nor NaN
        problems.append(f"int8_max_f1_loss is {recipe.int8_max_f1_loss} and must be at least 0")
    if not recipe.log_seconds >= 0:
        problems.append(f"log_seconds is {recipe.log_seconds} and must be at least 0, which is a line for each step")
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        value = getattr(recipe, name)
        if value is not None and not 0 <= value < 1:
            problems.append(f"{name} is {value} and must be at least 0 and below 1")
    return problems


def _tasks(training: dict[str, Any], recipe: Recipe, found: RankEnvironment, notes: list[str]) -> None:
    """Train where there is something to train on, evaluate where there is something to evaluate on."""
    tasks = [split.task for split in SPLITS.values()]
    requested = any(training.get(task) for task in tasks)
    if "do_train" not in training:
        training["do_train"] = bool(
            found.channels.intersection(SPLITS["train"].channels)
            or recipe.train_file
            or (recipe.dataset_name and not requested)
        )
    if not training["do_train"] and training.pop("load_best_model_at_end", False):
        notes.append("load_best_model_at_end: ignored, nothing is trained")
    meanwhile = (
        training.get("eval_strategy", "no") != "no"
        or training.get("load_best_model_at_end", False)
        or training.get("lr_scheduler_type") in MEASURING_SCHEDULERS
    )
    if "do_eval" not in training:
        training["do_eval"] = bool(
            found.channels.intersection(SPLITS["validation"].channels)
            or recipe.validation_file
            or meanwhile
            or (recipe.dataset_name and not requested)
        )
    elif meanwhile and not training["do_eval"]:
        training["do_eval"] = True
        notes.append("do_eval: true, as evaluation while training is asked for")
    if not any(training.get(task) for task in tasks):
        raise HyperparameterError(
            "There is nothing to do: pass SQuAD files as channel train (and validation), or dataset_name, "
            "and leave do_train and do_eval out or set one of them to true."
        )
    chosen = [task.removeprefix("do_") for task in tasks if training.get(task)]
    notes.append(f"tasks: {', '.join(chosen)}")


def _int8(training: Mapping[str, Any], recipe: Recipe, notes: list[str]) -> None:
    """Refuse what could only fail after the training."""
    if not recipe.export_int8:
        return
    if not recipe.export_openvino:
        raise HyperparameterError(
            "export_int8 quantises the graph that export_openvino false leaves out: leave out one of the two."
        )
    if not training["do_train"]:
        notes.append("export_int8: ignored, nothing is trained (`build.py quantize` takes a model that is there)")
    elif not training["do_eval"]:
        raise HyperparameterError(
            "export_int8 is measured on the questions of an evaluation, and this job has none: pass SQuAD files as "
            "channel validation, or validation_file, or leave export_int8 out."
        )


def _folders(training: dict[str, Any], paths: Paths, notes: list[str]) -> None:
    """Checkpoints never go into the model folder: they would all land in model.tar.gz."""
    given = training.get("output_dir")
    folder = Path(given).expanduser() if given else paths.checkpoints
    # A relative one would lie in the current folder of the job, which is deleted with it.
    if not folder.is_absolute() or any(folder.is_relative_to(model) for model in (paths.model, Paths().model)):
        folder = paths.checkpoints
    training["output_dir"] = str(folder)
    if given and str(folder) != given:
        notes.append(f"output_dir: the model goes to {paths.model}, checkpoints go to {folder}")


def _strategies(
    training: dict[str, Any], save_minutes: float | None, found: RankEnvironment, notes: list[str]
) -> float:
    """When to evaluate and when to write a checkpoint; returns the minutes between checkpoints, 0 for none by time."""
    if training.pop("enable_jit_checkpoint", False):
        notes.append("enable_jit_checkpoint: ignored, a job that is stopped saves what it has without it")
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
                f"metric_for_best_model is {metric!r}, which is not measured: give one of {', '.join(METRICS)}."
            )
        training["metric_for_best_model"] = plain
    # transformers would take logging_steps, which is a share of the job here.
    if training.get("eval_strategy") == "steps" and "logging_steps" not in training:
        training.setdefault("eval_steps", training.get("save_steps", 500) if best else 500)
    asked = "save_strategy" in training or "save_steps" in training
    if "save_strategy" in training or not training["do_train"]:
        training.setdefault("save_strategy", "no")
    elif best:
        training["save_strategy"] = training["eval_strategy"]
    elif "save_steps" in training:
        training["save_strategy"] = "steps"
    elif found.keeps_checkpoints:
        training["save_strategy"] = "epoch"
    else:
        training["save_strategy"] = "no"
    if best and training["save_strategy"] == "steps" and "eval_steps" in training:
        training.setdefault("save_steps", training["eval_steps"])
    if training["save_strategy"] == "no":
        notes.append("checkpoints: none (give the estimator checkpoint_s3_uri, or save_strategy, to have them)")
        return 0.0
    by_itself = found.keeps_checkpoints and not asked
    if by_itself:
        training.setdefault("save_total_limit", KEPT_CHECKPOINTS + bool(best))
    minutes = (SAVE_MINUTES if by_itself else 0.0) if save_minutes is None else save_minutes
    often = f" and every {minutes:g} minutes" if minutes else ""
    notes.append(f"checkpoints: {training['save_strategy']}{often}, in {training['output_dir']}")
    return minutes


def _loading(training: dict[str, Any], recipe: Recipe, notes: list[str]) -> None:
    """How windows become batches, and what DDP must know of the model."""
    if "train_sampling_strategy" not in training:
        training["train_sampling_strategy"] = "random" if recipe.pad_to_max_length else "group_by_length"
    if recipe.pad_to_max_length:
        notes.append(
            f"pad_to_max_length: every window is padded to {recipe.max_seq_length} tokens; "
            "without it batches are grouped by length, which is about three times as fast"
        )
    # Every parameter of a question-answering head is used; looking for unused ones walks the graph at each step.
    training.setdefault("ddp_find_unused_parameters", False)


def _logging(training: dict[str, Any], found: RankEnvironment, warnings: list[str]) -> None:
    """No progress bars of Trainer's (reporting has lines), and about fifty entries of the history."""
    training["disable_tqdm"] = True
    training.setdefault("logging_steps", 0.02)
    # transformers' own takes the mean so far for a loss that is none, 0 where each step is logged: that looks learnt.
    training.setdefault("logging_nan_inf_filter", False)
    training["logging_first_step"] = training.get("logging_first_step", True)
    # Where SageMaker's TensorBoard looks, and costs next to nothing where nobody does (records.tensorboard_folder).
    usual = "tensorboard" if training["do_train"] and "tensorboard" in found.reporters else "none"
    requested = training.get("report_to", usual)
    names = [requested] if isinstance(requested, str) else list(requested)
    names = sorted(found.reporters) if "all" in names else [name for name in names if name != "none"]
    for name in names:
        if name not in found.reporters:
            warnings.append(f"report_to {name} is not installed in this image: the job goes on without it")
    training["report_to"] = [name for name in names if name in found.reporters] or "none"
