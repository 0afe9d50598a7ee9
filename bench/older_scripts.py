"""Scripts written before transformers 5 on the training image of cpu-hf4, their text unchanged: how each ended.

Usage: BERTH_OLDER_SCRIPTS=FOLDER python -m bench.older_scripts [> bench/results/DATE-….md]

FOLDER holds two checkouts, of which nothing is kept here: `transformers` (v4.26.0, its examples/) and `notebooks`
(huggingface/notebooks, its sagemaker/). run_qa.py and run_glue.py get the embedded excerpt of SQuAD, the notebooks'
scripts small data sets that the image's own datasets makes, and all of them models that need no network. Notebook 09 is
run as it is, which 4.26 refuses, and with the one word that the failure says to add; 14 without its push. Exit code 1
where a script did not end as expected, or where ranks that were started together trained by themselves.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import program, published_scripts
from bench.published_scripts import MPI, WAYS, Way
from bench.scripts import common
from berth.common import engine, labels
from berth.common.errors import UserError
from berth.contract.archive import unpack
from berth.images.selection import find_built_image
from berth.local.demo import pretrained_model
from berth.local.job import TrainingJob

VARIABLE = "BERTH_OLDER_SCRIPTS"
CHECKOUTS = "a folder with checkouts of transformers and of notebooks"
IMAGE = "berth-train:cpu-hf4"
ALONE = Way("one host, one process", 1)
TWO_RANKS = Way("one host, two ranks", 2, environment={**MPI, "BERTH_PROCESSES_PER_HOST": "2"})
# What of notebook 09 transformers 4.26 refuses, and what the failure says to add.
REFUSED = "ValueError: --load_best_model_at_end requires the save and eval strategy to match"
ADD = 'give TrainingArguments save_strategy="epoch" as well'
WORD = 'evaluation_strategy="epoch",', 'evaluation_strategy="epoch", save_strategy="epoch",'
WITHOUT_PUSH = """
import runpy
import transformers
transformers.Trainer.push_to_hub = lambda trainer: print("push_to_hub: left out")
runpy.run_path("train.py", run_name="__main__")
"""


@dataclass(frozen=True)
class Notebook:
    """A run of a notebook's scripts/train.py.

    data: `text` or `image`; told: what the notebook sets, made smaller; keeps: checkpoints stay for the next run of the
    same folder; change: an old and a new text; refused: what its failure begins with and ends with.
    """

    folder: str
    note: str = ""
    data: str = "text"
    told: Mapping[str, str] = field(default_factory=dict)
    way: Way = ALONE
    keeps: bool = False
    change: tuple[str, str] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, str] | None = None

    @property
    def script(self) -> str:
        """The text's place below the checkout of the notebooks."""
        return f"sagemaker/{self.folder}/scripts/train.py"


SPOT = {"output_dir": "/opt/ml/checkpoints", "fp16": "True", "learning_rate": "3e-5"}
VIT = {"num_train_epochs": "1", "per_device_train_batch_size": "4"}
HUB = {"fp16": "True", "push_to_hub": "", "hub_model_id": "films", "hub_strategy": "every_save"}
NOTEBOOKS = (
    Notebook("01_getting_started_pytorch"),
    Notebook("05_spot_instances", told=SPOT, keeps=True),
    Notebook("05_spot_instances", "again, from its checkpoints", told=SPOT | {"epochs": "2"}, keeps=True),
    Notebook("05_spot_instances", told=SPOT, way=TWO_RANKS),
    Notebook("06_sagemaker_metrics", told={"checkpoints": "/opt/ml/checkpoints/"}),
    Notebook("14_train_and_push_to_hub", "without the push", told=HUB, files={"without_push.py": WITHOUT_PUSH}),
    Notebook("09_image_classification_vision_transformer", data="image", told=VIT, refused=(REFUSED, ADD)),
    Notebook("09_image_classification_vision_transformer", "with save_strategy", "image", VIT, change=WORD),
)


def write_code(notebook: Notebook, checkout: Path, code: Path) -> str:
    """The run's source folder, and the name of its program; UserError where the checkout lacks the script."""
    text = common.read_script(checkout / notebook.script, VARIABLE, CHECKOUTS)
    if notebook.change is not None:
        assert text.count(notebook.change[0]) == 1, notebook
        text = text.replace(*notebook.change)
    code.mkdir()
    for name, content in {"train.py": text, **notebook.files}.items():
        (code / name).write_text(content, "utf-8")
    return next(iter(notebook.files), "train.py")


def as_expected(notebook: Notebook, exit_code: int, reason: str) -> bool:
    """Whether a run ended as it should; `reason` is its failure in one line."""
    if notebook.refused is None:
        return exit_code == 0
    begin, end = notebook.refused
    return exit_code != 0 and reason.startswith(begin) and reason.endswith(end)


def make_data(scratch: Path) -> Path:
    """The folders text, image and vit, made in the image."""
    code, made = scratch / "code of the data", scratch / "made"
    code.mkdir()
    (code / "make.py").write_text((Path(__file__).parent / "jobs/notebook_data.py").read_text("utf-8"), "utf-8")
    told = {"sagemaker_program": "make.py"}
    job = TrainingJob({}, scratch / "out", hyperparameters=told, model=pretrained_model(), code=code, timeout=300)
    ended = common.run_job(job, IMAGE)
    if ended.exit_code != 0:
        raise UserError(f"{IMAGE} could not make the notebooks' data: {ended.reason}")
    unpack(scratch / "out" / "model.tar.gz", made)
    return made


def run(notebook: Notebook, checkout: Path, made: Path, scratch: Path) -> tuple[str, bool]:
    """One run: its row of the table, and whether it ended as it should."""
    named = f"{notebook.folder} {notebook.note} {notebook.way.name}"
    code = scratch / f"code of {named}"
    vit = notebook.data == "image"
    model = "model_id" if notebook.folder.startswith(("05", "14")) else "model_name"
    small = {"epochs": "1", "train_batch_size": "4", "eval_batch_size": "8"}
    told = {**({} if vit else small), **notebook.told, model: "/opt/ml/input/data/model"}
    checkpoints = scratch / f"checkpoints of {notebook.folder}" if notebook.keeps else None
    job = TrainingJob(
        {name: made / notebook.data / name for name in ("train", "test")},
        output=scratch / f"out of {named}",
        hyperparameters={"sagemaker_program": write_code(notebook, checkout, code), **told},
        environment=notebook.way.environment,
        model=made / "vit" if vit else pretrained_model(),
        code=code,
        checkpoints=checkpoints,
        timeout=600,
    )
    ended = common.run_job(job, IMAGE)
    ranks = notebook.way.ranks
    together = published_scripts.ranks_together(ended.lines)
    trained = notebook.refused is not None or together == ranks
    what = ", ".join(filter(None, [f"{notebook.folder}/train.py", notebook.note]))
    cells = [what, notebook.way.name, str(ended), f"{together} of {ranks}", _said(ended.lines), f"{ended.seconds:.0f}"]
    return common.row(*cells), as_expected(notebook, ended.exit_code, ended.reason) and trained


def _said(lines: Sequence[str]) -> str:
    """What the log shows of an evaluation, of settings that were turned off, and of a start from a checkpoint."""
    figures = [line for line in lines if "'eval_loss'" in line]
    accuracy = [line.partition("'eval_accuracy': ")[2].partition(",")[0] for line in figures[-1:]]
    found = [f"eval_accuracy {float(each):.4f}" for each in accuracy if each]
    found += sorted({line.removeprefix("berth: ").partition(",")[0] for line in lines if " off, for this host" in line})
    return ", ".join([*found, *["continues from a checkpoint"] * any("continue training" in line for line in lines)])


def run_all(folder: Path, say: Callable[[str], None]) -> bool:
    """Every script, a row each to `say`; whether all ended as they should."""
    good = True
    with tempfile.TemporaryDirectory(prefix="berth-older-") as made:
        scratch = Path(made)
        for number, script in enumerate(published_scripts.SCRIPTS):
            code = scratch / f"code {number}"
            published_scripts.copy_script(script, folder / "transformers", code)
            for way in WAYS:
                row, well = published_scripts.run(script, way, code, scratch, IMAGE)
                say(row)
                good &= well
        data = make_data(scratch)
        for notebook in NOTEBOOKS:
            row, well = run(notebook, folder / "notebooks", data, scratch)
            say(row)
            good &= well
    return good


def main(words: Sequence[str]) -> int:
    program.make_parser("older_scripts", __doc__).parse_args(words)
    folder = common.scripts_folder(VARIABLE, CHECKOUTS)
    rows: list[str] = []
    built = find_built_image(engine.connect(), IMAGE)
    good = run_all(folder, rows.append)
    told = (
        f"`{VARIABLE}=FOLDER python -m bench.older_scripts`, examples of transformers at "
        f"{common.commit(folder / 'transformers')} and sagemaker/ of huggingface/notebooks at "
        f"{common.commit(folder / 'notebooks')}, text unchanged; {IMAGE} (transformers "
        f"{built.labels['berth.transformers']}, torch {built.labels['berth.torch']}), kit "
        f"{labels.revision(built.labels)}, {os.cpu_count()} cores. "
        f"{'All ended as expected.' if good else 'Not all ended as expected.'}"
    )
    columns = ["script", "started as", "ended with", "ranks together", "figures", "seconds"]
    common.print_page("Scripts from before transformers 5 on the training image of cpu-hf4", told, columns, rows)
    return 0 if good else 1


if __name__ == "__main__":
    program.end_with(main)
