"""Published scripts written for smdistributed, on the open implementation of it: how each ended, against one process.

Usage: BERTH_SMDISTRIBUTED_SCRIPTS=FOLDER python -m bench.smdistributed_scripts [--only WORD] [> bench/results/….md]

FOLDER holds the scripts as SOURCE@COMMIT/path, of which nothing is kept here; bench/scripts/smdistributed_table.py
says which, and how to start each. Their text is unchanged but for calls of CUDA and a copy to S3. Doubles in
bench/doubles/ stand for data sets and for packages that the image lacks. Each is a job of the training image, which
gets the hyperparameters of its estimator's distribution, and whose `train` starts the ranks through mpirun. A script
counts as run when the losses that it prints, and its weights at the end, are those of one process of the same image
(bench/doubles/one_process) to 2e-6; where a script is itself wrong, its failure is expected, by name. Exit code 1 where
one is not as expected.
"""

import itertools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import program
from bench.scripts import common, records, trainer
from bench.scripts import smdistributed_jobs as jobs
from bench.scripts.smdistributed_jobs import Bench, Told
from bench.scripts.smdistributed_table import NOT_RUN, RUNS, Run
from berth.common import engine, labels
from berth.images import pins
from berth.images.revision import read_revision
from berth.images.selection import find_built_image

COLUMNS = ["script", "commit", "distribution", "ranks", "expected", "result", "loss compared with one process", "s"]
APART = "the ranks' weights differ: "
"""How the log's last line begins where each rank trained a model of its own."""


def as_expected(run: Run, told: Told) -> bool:
    """Whether the ranks ended as they should: well, with what the log says of them, or with the failure that is known
    of the script.
    """
    if not run.fails:
        return told.exit_code == 0 and (APART in told.output) == run.alone
    return told.exit_code != 0 and re.search(run.fails, told.reason) is not None


def other_orders(run: Run) -> list[str]:
    """Orders in which one process can add the same gradients, as jobs.run_one takes them."""
    mine = (run.parameters or {}).get("microbatches", 1)
    counts = [str(count) for count in (1, 2, 4, 8) if count != mine]
    return [*([] if run.parameters is None else counts), *([jobs.REVERSED] if run.replicas > 1 else [])]


def compare(run: Run, ranks: Told, one: Told, again: Callable[[str], Told]) -> tuple[str, bool]:
    """The cell of the losses, and whether they are those of one process.

    Where they are not, one process adds its gradients in other orders: with pooling and ReLU the last bit of a weight
    can decide which of two values is the larger one, and the script is then as far from itself as it is from the ranks.
    The nearest of these runs is taken; where 2e-6 does not hold, three times what it differs by from those of them that
    print the same losses. `deterministic_server` leaves no such excuse.
    """
    if one.exit_code != 0:
        # A script that fails by itself fails in one process as well.
        same = bool(run.fails) and re.search(run.fails, one.reason) is not None
        return ("fails in one process as well" if same else f"one process: {one.reason}"), same
    found = records.compare(ranks.folder, one.folder, run.loss, alone=run.alone, whole=not run.fails)
    if not found.problems or ranks.exit_code or (run.parameters or {}).get("deterministic_server"):
        return str(found), not found.problems
    folders = {order: again(order).folder for order in ("", *other_orders(run))}
    among = [records.compare(mine, his, run.loss) for mine, his in itertools.combinations(folders.values(), 2)]
    compared = {order: records.compare(ranks.folder, at, run.loss, alone=run.alone) for order, at in folders.items()}
    order = min(compared, key=lambda each: compared[each].distance)
    found, tolerance = compared[order], records.TOLERANCE
    if found.problems:
        among_these = [records.compare(folders[order], folders[each], run.loss) for each in folders if each != order]
        alike = [each.distance for each in among_these if "losses differ" not in each.problems]
        tolerance = max(tolerance, 3 * max(alike, default=0.0))
        found = records.compare(ranks.folder, folders[order], run.loss, tolerance, alone=run.alone)
    with_order = "gradients in reverse order" if order == jobs.REVERSED else f"{order or 'as many'} microbatches"
    apart = max(each.loss for each in among)
    told = f"{found}, with {with_order} in one process, whose own losses differ by up to {apart:.1e} with others"
    return f"{told} (tolerance {tolerance:.1e})", not found.problems


def run_script(run: Run, folder: Path, bench: Bench) -> tuple[str, bool]:
    """A run and its reference, both below `folder`: the row of the table, and whether all was as expected."""
    code = folder / "code"
    edits = jobs.write_script(run.script, bench, code)
    ranks, one = jobs.run_ranks(run, code, bench), jobs.run_one(run, code, bench)
    ran = {"": one}

    def again(order: str) -> Told:
        if order not in ran:
            ran[order] = jobs.run_one(run, code, bench, order)
        return ran[order]

    return make_row(run, edits, ranks, compare(run, ranks, one, again))


def make_row(run: Run, edits: int, ranks: Told, compared: tuple[str, bool]) -> tuple[str, bool]:
    """The row of the table, and whether all was as expected."""
    ended = as_expected(run, ranks)
    losses, same = compared
    expected = "ends, and the log says that the ranks' weights differ" if run.alone else "ends"
    result = "ended" if ranks.exit_code == 0 else f"exit code {ranks.exit_code}: {ranks.reason[:300]}"
    if APART in ranks.output:
        result += f"; {APART}{ranks.output.rpartition(APART)[2].splitlines()[0]}"
    row = common.row(
        ", ".join(
            filter(None, [f"{run.script.repository} {run.script.path.strip()}, {edits} places edited", run.note])
        ),
        run.script.commit,
        run.distribution,
        str(run.ranks),
        f"fails: `{run.fails}`" if run.fails else expected,
        ("" if ended else "**not as expected:** ") + result,
        ("" if same else "**differs:** ") + losses,
        f"{ranks.seconds:.0f}",
    )
    print(row, file=sys.stderr, flush=True)
    return row, ended and same


def run_trainer(bench: Bench) -> Iterator[tuple[str, bool]]:
    """The rows of transformers' own script, in the image that has transformers 4.26."""
    data = trainer.make_data(bench)
    for number, run in enumerate(trainer.RUNS):
        code = bench.scratch / f"trainer {number}" / "code"
        edits = jobs.write_script(run.script, bench, code)
        ranks = trainer.run_ranks(run, code, data, bench)
        same, other = (trainer.run_one(code, data, parts, bench) for parts in (4, 1))
        if any(each.exit_code for each in (ranks, same, other)):
            compared = f"one process: {same.reason or other.reason or 'ended'}", False
        else:
            found = trainer.compare(ranks.folder, same.folder, other.folder)
            compared = str(found), not found.problems
        yield make_row(run, edits, ranks, compared)


def page_told(bench: Bench, kits: Sequence[str], words: Sequence[str], *, good: bool) -> str:
    """How all of it was started, for the page's first paragraph; `kits` are the images' own."""
    kit = f"kit {read_revision(pins.ROOT)}" + (", laid over that of the images" if bench.own_kit else "")
    options = "".join(f" {word}" for word in words)
    return (
        f"`{jobs.VARIABLE}=FOLDER python -m bench.smdistributed_scripts{options}`, each a job whose ranks `train` "
        f"starts through mpirun, by the distribution that its estimator asks for, in {jobs.IMAGE}, run_glue.py in "
        f"{trainer.IMAGE} (kit {' and '.join(kits)}); references in one process there. gloo, "
        f"{os.cpu_count()} cores, {kit}. Tolerance {records.TOLERANCE:g}. "
        f"{'All as expected.' if good else 'Not all as expected.'}"
    )


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("smdistributed_scripts", __doc__)
    parser.add_argument("--only", metavar="WORD", default="", help="the scripts of whose rows it is a part")
    parser.add_argument(
        "--own-kit", action="store_true", help="lay this checkout's kit over the images', where they are older"
    )
    asked = parser.parse_args(words)
    scripts = common.scripts_folder(jobs.VARIABLE, jobs.HOLDS)
    client = engine.connect()
    images = {name: find_built_image(client, name) for name in (jobs.IMAGE, trainer.IMAGE)}
    ids = {name: str(image.id) for name, image in images.items()}
    found: list[tuple[str, bool]] = []
    with tempfile.TemporaryDirectory(prefix="berth-smdistributed-") as made:
        bench = Bench(scripts, Path(made), jobs.make_channels(Path(made) / "channels"), ids, asked.own_kit)
        for number, run in enumerate(RUNS):
            if asked.only in f"{run.script.source} {run.script.path} {run.distribution} {run.note}":
                found.append(run_script(run, Path(made) / str(number), bench))
        if asked.only in "trainer run_glue.py":
            found += run_trainer(bench)
    good = all(well for _, well in found)
    told = page_told(bench, [labels.revision(image.labels) for image in images.values()], words, good=good)
    common.print_page(
        "Scripts written for smdistributed, on the open implementation", told, COLUMNS, [row for row, _ in found]
    )
    print("\nNot run:\n")
    print("\n".join(f"- {script.strip()}: {why}." for script, why in NOT_RUN.items()))
    return 0 if good else 1


if __name__ == "__main__":
    program.end_with(main)
