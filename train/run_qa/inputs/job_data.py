"""The questions of a job and their windows: what is trained on in files, what is answered in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from berth.contract.hyperparameters import HyperparameterError
from berth.qa.faults import counted
from berth.qa.squad import DataError, Example
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import make_windows, position_count
from berth.runtime.engines.model_check import takes_token_types
from berth.runtime.engines.quantization import CALIBRATION_QUESTIONS, CalibrationData
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
    """The questions of each split; `train`: the windows of those to train on, None where nothing is trained;
    `calibration`: a sample of these, for an int8 graph.
    """

    questions: Mapping[str, Questions]
    cutting: Cutting
    train: WindowFile | None
    calibration: Sequence[Example]

    def question_set(self, split: str) -> QuestionSet:
        """The questions of a split to answer, with their windows. Raises WindowError for one that can't be cut."""
        examples, cutting = self.questions[split].examples, self.cutting
        windows = make_windows(cutting.tokenizer, examples, cutting.length, cutting.stride, label=True)
        return QuestionSet(examples, windows, scored=self.questions[split].scored)

    def for_int8(self) -> CalibrationData:
        """What an int8 graph is calibrated with, and measured on."""
        return CalibrationData(self.calibration, self.questions["validation"].examples)


def load(
    sources: Mapping[str, DataSource], recipe: Recipe, loaded: Loaded, rank: Rank, say: Callable[[str], None]
) -> JobData:
    """Read every split, by all ranks together; the windows of `train` are made on the way. Raises DataError with all
    faults of this host's files, and after it what berth.qa.windows raises.
    """
    tokenizer = PairTokenizer.of(loaded.tokenizer, token_types=takes_token_types(loaded.model)).sharing()
    length = window_length(recipe, loaded, say)
    cutting = Cutting(tokenizer, length, recipe.doc_stride)
    windows = WindowFile(cutting)
    sample = export.Sample(CALIBRATION_QUESTIONS if recipe.export_int8 else 0)
    takes = {"train": lambda examples: windows.fill(sample.through(examples))}
    read = questions.load_all(sources, recipe, recipe.limits, say, takes)
    if rank.hosts > 1:
        check_same(read, rank)
    export.check(recipe, {split: each.count for split, each in read.items()})
    if "train" not in read:
        return JobData(read, cutting, None, ())
    windows.finish()
    say(
        f"train data: {len(windows)} windows of up to {length} tokens, {windows.size / 1e6:.1f} MB "
        f"in {windows.folder} for each rank"
    )
    return JobData(read, cutting, windows, sample.examples)


def check_same(splits: Mapping[str, Questions], rank: Rank) -> None:
    """Raises DataError if hosts hold different questions of a split; all ranks must call it.

    Ranks that share out different data would train on some questions twice, or wait for each other for ever.
    """
    everyone = gather({split: each.digest for split, each in splits.items()}, rank)
    for split, each in splits.items():
        if len({digests[split] for digests in everyone}) > 1:
            raise DataError(
                f"The {split} data differs between hosts ({rank.host or 'this host'} has "
                f"{counted(each.count, 'question')}): give all hosts the same files."
            )


def window_length(recipe: Recipe, loaded: Loaded, say: Callable[[str], None]) -> int:
    """Tokens that a window may have: `max_seq_length`, or what the model takes. Raises HyperparameterError where no
    window of that length can hold `doc_stride` tokens beside a question.
    """
    wanted = recipe.max_seq_length
    most = int(min(loaded.tokenizer.model_max_length, position_count(loaded.model) or wanted))
    length = min(wanted, most)
    if wanted > most:
        say(f"warning: the model takes {most} tokens, not max_seq_length {wanted}")
    special = int(loaded.tokenizer.num_special_tokens_to_add(pair=True))
    room = length - special - 1
    if recipe.doc_stride >= room:
        of_model = "" if wanted <= most else ", as many as the model takes"
        raise HyperparameterError(
            f"doc_stride is {recipe.doc_stride} and no window can hold it: of its {length} tokens{of_model}, {special} "
            f"are special and one at least is the question's; set doc_stride to less than {max(room, 1)}"
            + (", or raise max_seq_length." if wanted <= most else ".")
        )
    return length
