"""Fine-tune a model for extractive question answering: `python -m berth.train.run_qa`, no arguments, once per rank.

Each rank reads SageMaker's hyperparameters itself, and RANK, WORLD_SIZE and so on from its environment. The order is:
hyperparameters → settings → sources → process group → windows → training → model → evaluation. Only rank 0 writes the
log, the model and the metrics (reporting/records.py); the other ranks only compute.
"""

import atexit
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import torch
import transformers
from transformers import TrainingArguments, enable_full_determinism, set_seed
from transformers.integrations.integration_utils import get_available_reporting_integrations

from berth.contract.deprecated import DEPRECATED_NAMES
from berth.contract.errors import JobError
from berth.contract.hyperparameters import HyperparameterError, read
from berth.contract.launch_options import read_trace
from berth.contract.splits import SPLITS
from berth.contract.words import counted
from berth.qa.spans import LogitsError
from berth.qa.squad import DataError
from berth.qa.windows import WindowError
from berth.runtime.config_files import read_object, wants_checkpoints
from berth.runtime.cpus import count_cpus
from berth.runtime.engines.quantization import CalibrationData
from berth.runtime.rank import Rank
from berth.train.run_qa import export, model, ranks, saved_model
from berth.train.run_qa.agreement import AgreedStop
from berth.train.run_qa.checkpoints import choice, global_batch
from berth.train.run_qa.checkpoints.choice import Start
from berth.train.run_qa.device import RankEnvironment
from berth.train.run_qa.evaluation import Evaluator
from berth.train.run_qa.inputs import data, hub, job_data
from berth.train.run_qa.inputs.features import Collator, WindowDataset
from berth.train.run_qa.inputs.job_data import JobData
from berth.train.run_qa.model import Loaded
from berth.train.run_qa.recipe import Paths, Recipe, TrainingSettings, complete, options
from berth.train.run_qa.reporting import records, report
from berth.train.run_qa.reporting.phases import PhaseClock, process_age
from berth.train.run_qa.reporting.progress import LineCallback
from berth.train.run_qa.reporting.trace import TraceCallback
from berth.train.run_qa.stop_signal import JobStopped, StopSignal
from berth.train.run_qa.stopping import Stopping
from berth.train.run_qa.trainer import QuestionAnsweringTrainer

USER_ERRORS = (JobError, DataError, WindowError, LogitsError)


def main() -> int:
    """Run the job and return the exit code. A user's mistake is reported in one sentence: to the launcher, or on stderr
    if there is none. Any other exception is printed as a traceback.
    """
    signal = StopSignal()
    signal.end_with("before it had anything to save: start it again.")
    signal.listen()
    try:
        run(os.environ, signal)
    except JobStopped as reason:
        report.failure(str(reason))
        return reason.exit_code
    except USER_ERRORS as reason:
        report.failure(str(reason))
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def exit_now(code: int) -> NoReturn:
    """Exit with `code` after the atexit functions, but without the rest of Python's shutdown.

    The shutdown takes a second, because it collects the objects of torch and transformers. Skipping only the collection
    (gc.freeze) ended one rank in thirty with SIGABRT, because gloo's threads still run during the shutdown.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(environment: Mapping[str, str], signal: StopSignal) -> None:
    """One rank's whole job."""
    paths = Paths(Path(environment.get("SAGEMAKER_BASE_DIR", "/opt/ml")))
    rank = Rank.from_environment(environment)
    say: Callable[[str], None] = report.say if rank.leads else lambda text: None
    clock = PhaseClock(process_age())
    channels = data.channels(paths, rank.hosts)
    settings = _settings(paths, channels, rank, environment, say)
    recipe, training = settings.recipe, settings.training
    wanted = [name for name, split in SPLITS.items() if training.get(split.task)]
    sources = {split: data.find(split, recipe, paths, channels) for split in wanted}
    name, note = model.find(recipe, paths, channels)
    say(note)
    if hub.needs([name, recipe.tokenizer_name, recipe.config_name, *(each.dataset for each in sources.values())]):
        hub.go_offline_if_out_of_reach(say)

    cuda = not training.get("use_cpu", False)
    events = records.tensorboard_folder(paths, recipe.logging_dir, environment)
    threads = _prepare_process(rank, events, environment, cuda=cuda)
    ranks.start_group(rank, settings.backend, settings.timeout, cuda=cuda)
    ranks.check_settings(rank, training)
    start = _start(settings, environment.get("TRAINING_JOB_NAME", ""), rank, say)
    args = _arguments(training)
    device = "GPU" if cuda else f"CPU with {counted(threads, 'thread')} each"
    say(f"ranks: {rank.world_size}, {settings.backend}, {device}")
    # Before the model is loaded: its answer head starts from random weights, which must be the same on every rank.
    (enable_full_determinism if args.full_determinism else set_seed)(args.seed)
    loaded = _load(name, recipe, args, rank, say, resumes=start.chosen is not None)
    clock.switch("features")
    inputs = job_data.load(sources, recipe, loaded, rank, say)
    trainer = _trainer(loaded, settings, args, inputs, LineCallback(rank, say, clock, recipe.log_seconds))
    trainer.stopping = Stopping(signal, settings, trainer)
    trainer.add_callback(trainer.stopping)
    if args.do_train:
        identity = trainer.identity(loaded)
        choice.check_identity(start, identity)
        trainer.begin(start, identity)
    if args.do_train and (steps := read_trace(environment)):
        trainer.trace = TraceCallback(steps, paths.output_data / "trace", rank, say, cuda=cuda)
        trainer.add_callback(trainer.trace)
    figures: dict[str, Any] = {"world_size": rank.world_size}
    with records.history_of_a_failure(rank, paths.output_data, lambda: trainer.state.log_history):
        with suppress(AgreedStop):
            _work(trainer, loaded, settings, inputs, paths, figures)
        if trainer.stopping.agreed and trainer.stopping.leaves_model and rank.leads:
            records.finish(paths, trainer.lines, figures, trainer.state.log_history)
        trainer.stopping.end(paths.model)
        for note in (note for each in inputs.questions.values() for note in each.notes):
            say(note)
        ranks.end_group()
        if not rank.leads:
            return
        if recipe.export_int8 and args.do_train:  # takes minutes, so only after the other ranks have ended
            signal.end_with(f"after the training: the model is in {paths.model}, without its int8 graph and figures.")
            questions = CalibrationData(inputs.calibration, inputs.questions["validation"].examples)
            export.add_int8(recipe, questions, paths.model, say)
        records.finish(paths, trainer.lines, figures, trainer.state.log_history)
    say(f"done: model, metrics.json and history.json are in {paths.model}")


def _work(
    trainer: QuestionAnsweringTrainer,
    loaded: Loaded,
    settings: TrainingSettings,
    inputs: JobData,
    paths: Paths,
    figures: dict[str, Any],
) -> None:
    """Train, write the model, evaluate and predict, as far as the job asks for it. All ranks must call it.

    The metrics are added to `figures`. Raises AgreedStop if the job is to stop; the metrics so far are then in
    `figures`.
    """
    recipe, args, lines, stopping = settings.recipe, trainer.args, trainer.lines, trainer.stopping
    lines.clock.switch("saving")
    if args.do_train:
        with lines.clock.during("training"):
            figures |= _train(trainer, inputs.questions["train"].count, lines.say)
        if stopping.leaves_model:
            _save(trainer, loaded, paths.model, lines.say)
        stopping.check()
        if recipe.export_openvino and trainer.rank.leads:
            export.add_graph(paths.model, lines.say)
    if args.do_eval:
        figures |= trainer.evaluate()
        figures["eval_samples"] = inputs.questions["validation"].count
        if trainer.rank.leads:
            report.save(paths.output_data / "eval_predictions.json", trainer.predictions)
    if args.do_predict:
        figures |= _predict(trainer, inputs, paths, lines.say)


def _settings(
    paths: Paths, channels: frozenset[str], rank: Rank, environment: Mapping[str, str], say: Callable[[str], None]
) -> TrainingSettings:
    """Read, type and complete the hyperparameters."""
    parsed = read(read_object(paths.hyperparameters), options(TrainingArguments), DEPRECATED_NAMES)
    env = RankEnvironment(
        world_size=rank.world_size,
        cuda=torch.cuda.is_available(),
        capability=torch.cuda.get_device_capability() if torch.cuda.is_available() else None,
        backend=environment.get("BERTH_BACKEND", ""),
        channels=channels,
        keeps_checkpoints=wants_checkpoints(paths.base),
        compiler=any(shutil.which(name) for name in ("gcc", "clang")),
        reporters=frozenset(get_available_reporting_integrations()),
    )
    settings = complete(parsed.values, paths, env, parsed.problems)
    for note in [*parsed.notes, *settings.notes]:
        say(note)
    for warning in settings.warnings:
        say(f"warning: {warning}")
    return settings


def _prepare_process(rank: Rank, events: str, environment: Mapping[str, str], *, cuda: bool) -> int:
    """Set the number of threads and TensorBoard's folder, and turn off progress bars. Returns the number of threads.

    The tokenizer, TensorBoard and datasets read their variables when they are loaded.
    """
    share = max(1, count_cpus() // rank.local_world_size)
    if "OMP_NUM_THREADS" not in environment and not cuda:
        torch.set_num_threads(share)
    os.environ.setdefault("RAYON_NUM_THREADS", str(share))  # the tokenizer's threads
    os.environ["TENSORBOARD_LOGGING_DIR"] = events
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    transformers.utils.logging.disable_progress_bar()
    return torch.get_num_threads()


def _arguments(training: dict[str, Any]) -> TrainingArguments:
    try:
        return TrainingArguments(**training)
    except (ValueError, TypeError, ImportError, OSError) as reason:
        text = " ".join(str(reason).split()).rstrip(".")
        raise HyperparameterError(f"These hyperparameters don't go together: {text}.") from reason


def _load(
    name: str | Path, recipe: Recipe, args: TrainingArguments, rank: Rank, say: Callable[[str], None], *, resumes: bool
) -> Loaded:
    """Load the model, and log one line about its random weights instead of transformers' report.

    There is no line if the training `resumes`: the checkpoint's weights then replace all of them.
    """
    transformers.utils.logging.set_verbosity_error()
    loaded = model.load(name, recipe)
    if not args.do_train:
        model.check_head(loaded, name)
    level = args.get_process_log_level() if rank.leads else logging.ERROR
    transformers.utils.logging.set_verbosity(level)
    if loaded.fresh and not resumes:
        say(f"model: {', '.join(loaded.fresh)} starts from random weights, the rest is pretrained")
    return loaded


def _trainer(
    loaded: Loaded,
    settings: TrainingSettings,
    args: TrainingArguments,
    inputs: JobData,
    lines: LineCallback,
) -> QuestionAnsweringTrainer:
    recipe, train = settings.recipe, inputs.train
    validation = inputs.question_set("validation") if "validation" in inputs.questions else None
    if validation:
        lines.say(
            f"validation data: {counted(len(validation.windows), 'window')} of up to {inputs.cutting.length} tokens"
        )
    collator = Collator(
        loaded.tokenizer.pad_token_id or 0,
        length=inputs.cutting.length if recipe.pad_to_max_length else None,
        multiple=1 if args.use_cpu else 8,
    )
    return QuestionAnsweringTrainer(
        loaded=loaded,
        args=args,
        evaluator=Evaluator(collator, recipe.decoding(), args.per_device_eval_batch_size, lines),
        train_dataset=WindowDataset(train) if train else None,
        questions=validation,
    )


def _start(settings: TrainingSettings, job: str, rank: Rank, say: Callable[[str], None]) -> Start:
    """Choose the checkpoint that this `job` resumes from; a resumed training keeps the number of windows per step."""
    if not settings.training["do_train"]:
        return Start()
    start = choice.choose(settings, job, rank, say)
    if start.chosen and start.chosen.manifest:
        for line in global_batch.keep(settings.training, start.chosen.manifest, rank.world_size):
            say(line)
    return start


def _train(trainer: QuestionAnsweringTrainer, questions: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Train, check that all ranks hold the same weights, and return the metrics."""
    rank, args = trainer.rank, trainer.args
    resume = str(trainer.last_checkpoint) if trainer.last_checkpoint else None
    try:
        with choice.reading_with_old_torch(resume, say):
            metrics = trainer.train(resume_from_checkpoint=resume).metrics
    except (RuntimeError, ValueError) as reason:
        # torch's messages if the state of a model or of an optimizer does not fit.
        if resume is None or not ("loading state_dict" in str(reason) or "loaded state dict" in str(reason)):
            raise
        raise choice.mismatch_error(resume) from reason
    figures: dict[str, Any] = {} if trainer.lines.nothing_left else dict(metrics)
    if args.load_best_model_at_end and not trainer.stopping.agreed and not trainer.sharded:
        ranks.share_weights(rank, trainer.model)
    if not trainer.sharded:
        figures["weights_sha256"] = ranks.check_equal(rank, trainer.model)
        model.check_numbers(trainer.model)
        if rank.world_size > 1:
            say(f"weights: the same on all {rank.world_size} ranks, sha256 {figures['weights_sha256'][:12]}")
    figures |= trainer.lines.overall
    figures["train_samples"] = questions
    figures["train_steps"] = trainer.state.global_step
    figures["epoch"] = trainer.state.epoch or 0.0
    if rank.leads and not trainer.lines.nothing_left and not trainer.stopping.agreed:
        for name in ("epoch", "train_loss", "train_runtime", "train_samples_per_second"):
            report.metric(name, float(figures[name]))
    return figures


def _save(trainer: QuestionAnsweringTrainer, loaded: Loaded, folder: Path, say: Callable[[str], None]) -> None:
    """Write model and tokenizer on rank 0; Trainer gathers a sharded model, so then all ranks must call it."""

    def save(into: Path) -> None:
        if trainer.sharded:
            trainer.save_model(str(into))
        else:
            trainer.accelerator.unwrap_model(trainer.model).save_pretrained(into)
            loaded.tokenizer.save_pretrained(into)

    if trainer.rank.leads or trainer.sharded:
        saved_model.write(folder, save)
    say(f"model: written to {folder}")


def _predict(
    trainer: QuestionAnsweringTrainer, inputs: JobData, paths: Paths, say: Callable[[str], None]
) -> dict[str, float]:
    """Write the test split's answers to test_predictions.json; log its scores so that no metric pattern matches."""
    with trainer.lines.clock.during("features"):
        questions = inputs.question_set("test")
    scores, predictions = trainer.answer(questions)
    if not scores:
        say("test data: it has no answers, so the predictions are not measured")
    for name in sorted(scores.keys() & {"exact_match", "f1"}):
        say(f"test_{name}: {report.number(scores[name])}")
    if trainer.rank.leads:
        report.save(paths.output_data / "test_predictions.json", predictions)
    return {f"test_{name}": value for name, value in scores.items()}
