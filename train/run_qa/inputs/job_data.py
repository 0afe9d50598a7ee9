"""Reads the questions of a job and cuts them into windows: training windows are in files, the others in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from berth.contract.hyperparameters import HyperparameterError
from berth.contract.splits import SPLITS
from berth.contract.words import counted
from berth.qa.squad import DataError, Example
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import make_windows, position_count
from berth.runtime.engines.model_check import takes_token_types
from berth.runtime.engines.quantization import CALIBRATION_QUESTIONS
from berth.runtime.rank import Rank
from berth.train.run_qa import export
from berth.train.run_qa.inputs import questions
from berth.train.run_qa.inputs.data import DataSource
from berth.train.run_qa.inputs.features import QuestionSet
from berth.train.run_qa.inputs.questions import Questions
from berth.train.run_qa.inputs.window_file import Cutting, WindowFile
from berth.train.run_qa.model import Loaded
from berth.train.run_qa.ranks import gather
from berth.train.run_qa.recipe import Recipe


@dataclass(frozen=True, slots=True)
class JobData:
    """The questions of each split. `train`: the windows to train on, None if the job does not train. `calibration`: a
    sample of the training questions, for an int8 graph.
    """

    questions: Mapping[str, Questions]
    cutting: Cutting
    train: WindowFile | None
    calibration: Sequence[Example]

    def question_set(self, split: str) -> QuestionSet:
        """The questions of a split with their windows. Raises WindowError if a question can't be cut into windows."""
        examples, cutting = self.questions[split].examples, self.cutting
        windows = make_windows(cutting.tokenizer, examples, cutting.length, cutting.stride, label=True)
        return QuestionSet(examples, windows, scored=self.questions[split].scored)


def load(
    sources: Mapping[str, DataSource], recipe: Recipe, loaded: Loaded, rank: Rank, say: Callable[[str], None]
) -> JobData:
    """Read every split and make the windows of `train`; all ranks must call it.

    Raises DataError with all faults of this host's files. Errors of berth.qa.windows come only after those.
    """
    tokenizer = PairTokenizer.of(loaded.tokenizer, token_types=takes_token_types(loaded.model)).sharing()
    length = window_length(recipe, loaded, say)
    cutting = Cutting(tokenizer, length, recipe.doc_stride)
    windows = WindowFile(cutting)
    sample: list[Example] = []
    sample_size = CALIBRATION_QUESTIONS if recipe.export_int8 else 0
    takes = {"train": lambda examples: windows.fill(export.sampled(examples, sample_size, sample))}
    most = (recipe.max_train_samples, recipe.max_eval_samples, recipe.max_predict_samples)
    splits = questions.load_all(sources, recipe, dict(zip(SPLITS, most, strict=True)), say, takes)
    if rank.hosts > 1:
        check_same(splits, rank)
    export.check(recipe, {name: split.count for name, split in splits.items()})
    if "train" not in splits:
        return JobData(splits, cutting, None, ())
    windows.finish()
    say(
        f"train data: {counted(len(windows), 'window')} of up to {length} tokens, {windows.size / 1e6:.1f} MB "
        f"in {windows.folder} for each rank"
    )
    return JobData(splits, cutting, windows, sample)


def check_same(splits: Mapping[str, Questions], rank: Rank) -> None:
    """Raises DataError if hosts have different questions of a split; all ranks must call it.

    With different data the ranks would train on some questions twice, or wait for each other for ever.
    """
    everyone = gather({split: each.digest for split, each in splits.items()}, rank)
    for split, each in splits.items():
        if len({digests[split] for digests in everyone}) > 1:
            raise DataError(
                f"The {split} data differs between hosts ({rank.host or 'this host'} has "
                f"{counted(each.count, 'question')}): give all hosts the same files."
            )


def window_length(recipe: Recipe, loaded: Loaded, say: Callable[[str], None]) -> int:
    """The maximum tokens of a window: `max_seq_length`, or the model's maximum if that is less.

    Raises HyperparameterError if a window of this length has no room for `doc_stride` tokens next to a question.
    """
    wanted = recipe.max_seq_length
    most = int(min(loaded.tokenizer.model_max_length, position_count(loaded.model) or wanted))
    length = min(wanted, most)
    if wanted > most:
        say(f"warning: max_seq_length is {wanted}, but the model takes at most {most} tokens: using {most}")
    special = int(loaded.tokenizer.num_special_tokens_to_add(pair=True))
    room = length - special - 1
    if recipe.doc_stride >= room:
        maximum = "" if wanted <= most else ", the model's maximum"
        raise HyperparameterError(
            f"doc_stride is {recipe.doc_stride} and no window can hold it: of its {length} tokens{maximum}, {special} "
            f"are special and at least one is the question's; set doc_stride to less than {max(room, 1)}"
            + (", or raise max_seq_length." if wanted <= most else ".")
        )
    return length
