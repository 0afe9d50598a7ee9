"""Published scripts written for smdistributed, on the open implementation of it: how each ended, against one process.

Usage: BERTH_SMDISTRIBUTED_SCRIPTS=FOLDER python -m bench.smdistributed_scripts [--only WORD] [> bench/results/….md]

FOLDER holds the scripts as SOURCE@COMMIT/path, of which nothing is kept here; bench/scripts/smdistributed_table.py
says which, and how to start each. Their text is unchanged but for calls of CUDA and a copy to S3. Doubles in
bench/doubles/ stand for data sets and for packages that are not installed. Ranks are processes of this machine, started
by torchrun (scripts/direct.py); a way through an image's `train` would stand beside it, as bench/older_scripts.py has
it. A script counts as run when the losses that it prints, and its weights at the end, are those of one process
(bench/doubles/one_process) to 2e-6; where a script is itself wrong, its failure is expected, by name. Exit code 1 where
one is not as expected.
"""

import itertools
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from bench import program
from bench.scripts import common, direct, records, trainer
from bench.scripts.direct import Told
from bench.scripts.smdistributed_table import NOT_RUN, RUNS, Run
from berth.images import build, pins

COLUMNS = ["script", "commit", "distribution", "ranks", "expected", "result", "loss compared with one process", "s"]
_LAST_ERROR = re.compile(
    r"^\[rank\d+\]: ((?:\w+\.)*[A-Z]\w+: .+)$|^((?:\w+\.)*\w*(?:Error|Exception)\b.*)$", re.MULTILINE
)


def failure(output: str) -> str:
    """The first exception that a process ended with, in a line; empty for none."""
    found = [line for each in _LAST_ERROR.findall(output) if "ChildFailedError" not in (line := each[0] or each[1])]
    return found[0].strip() if found else ""


def as_expected(run: Run, told: Told) -> bool:
    """Whether the ranks ended as they should: well, or with the failure that is known of the script."""
    if not run.fails:
        return told.exit_code == 0
    return told.exit_code != 0 and re.search(run.fails, told.output) is not None


def other_orders(run: Run) -> list[str]:
    """Orders in which one process can add the same gradients, as direct.run_one takes them."""
    mine = (run.parameters or {}).get("microbatches", 1)
    counts = [str(count) for count in (1, 2, 4, 8) if count != mine]
    return [*([] if run.parameters is None else counts), *([direct.REVERSED] if run.replicas > 1 else [])]


def compare(run: Run, ranks: Told, one: Told, again: Callable[[str], Told]) -> tuple[str, bool]:
    """The cell of the losses, and whether they are those of one process.

    Where they are not, one process adds its gradients in other orders: with pooling and ReLU the last bit of a weight
    can decide which of two values is the larger one, and the script is then as far from itself as it is from the ranks.
    The nearest of these runs is taken; where 2e-6 does not hold, three times what it differs by from those of them that
    print the same losses. `deterministic_server` leaves no such excuse.
    """
    if one.exit_code != 0:
        # A script that fails by itself fails in one process as well.
        same = bool(run.fails) and failure(one.output) == failure(ranks.output)
        return ("fails in one process as well" if same else f"one process: {failure(one.output)}"), same
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
    with_order = "gradients in reverse order" if order == direct.REVERSED else f"{order or 'as many'} microbatches"
    apart = max(each.loss for each in among)
    told = f"{found}, with {with_order} in one process, whose own losses differ by up to {apart:.1e} with others"
    return f"{told} (tolerance {tolerance:.1e})", not found.problems


def run_script(run: Run, folder: Path, scratch: Path, library: Path) -> tuple[str, bool]:
    """A run and its reference: the row of the table, and whether all was as expected."""
    code = scratch / "code"
    edits = direct.write_script(run.script, folder, code)
    began = time.monotonic()
    ranks = direct.run_ranks(run, code, scratch, library)
    seconds = time.monotonic() - began
    one = direct.run_one(run, code, scratch)
    ran = {"": one}

    def again(order: str) -> Told:
        if order not in ran:
            ran[order] = direct.run_one(run, code, scratch, order)
        return ran[order]

    return make_row(run, edits, ranks, seconds, compare(run, ranks, one, again))


def make_row(run: Run, edits: int, ranks: Told, seconds: float, compared: tuple[str, bool]) -> tuple[str, bool]:
    """The row of the table, and whether all was as expected; what was said goes to standard error where it was not."""
    ended = as_expected(run, ranks)
    losses, same = compared
    if not (ended and same):
        print(ranks.output[-6000:], file=sys.stderr)
    expected = "ends, its replicas' weights differ" if run.alone else "ends"
    result = "ended" if ranks.exit_code == 0 else f"exit code {ranks.exit_code}: {failure(ranks.output)[:300]}"
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
        f"{seconds:.0f}",
    )
    print(row, file=sys.stderr, flush=True)
    return row, ended and same


def run_trainer(python: Path, folder: Path, scratch: Path, library: Path) -> Iterator[tuple[str, bool]]:
    """The rows of transformers' own script, by a Python that has transformers 4.26."""
    data = scratch / "trainer"
    trainer.make_data(python, data)
    for number, run in enumerate(trainer.RUNS):
        code = scratch / f"trainer {number}"
        edits = direct.write_script(run.script, folder, code)
        began = time.monotonic()
        ranks = trainer.run_ranks(run, python, code, data, library)
        seconds = time.monotonic() - began
        same, other = (trainer.run_one(run, python, code, data, parts) for parts in (4, 1))
        if any(each.exit_code for each in (ranks, same, other)):
            compared = f"one process: {failure(same.output + other.output)}", False
        else:
            found = trainer.compare(ranks.folder, same.folder, other.folder)
            compared = str(found), not found.problems
        yield make_row(run, edits, ranks, seconds, compared)


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("smdistributed_scripts", __doc__)
    parser.add_argument("--only", metavar="WORD", default="", help="the scripts of whose rows it is a part")
    parser.add_argument("--library", metavar="FOLDER", type=Path, help="has smdistributed, in place of the kit's own")
    parser.add_argument(
        "--older-python", metavar="PYTHON", type=Path, help="one with transformers 4.26, for run_glue.py"
    )
    asked = parser.parse_args(words)
    folder = common.scripts_folder(direct.VARIABLE, direct.HOLDS)
    found: list[tuple[str, bool]] = []
    with tempfile.TemporaryDirectory(prefix="berth-smdistributed-") as made:
        library = asked.library or Path(made) / "library"
        if asked.library is None:
            library.mkdir()
            (library / "smdistributed").symlink_to(pins.ROOT / "train/smdistributed")
        for number, run in enumerate(RUNS):
            if asked.only not in f"{run.script.source} {run.script.path} {run.distribution} {run.note}":
                continue
            scratch = Path(made) / str(number)
            scratch.mkdir()
            found.append(run_script(run, folder, scratch, library))
        if asked.older_python and asked.only in "trainer run_glue.py":
            found += run_trainer(asked.older_python, folder, Path(made), library)
    good = all(well for _, well in found)
    told = (
        f"`{direct.VARIABLE}=FOLDER python -m bench.smdistributed_scripts`, ranks as processes over gloo, torch "
        f"{torch.__version__}, {os.cpu_count()} cores, kit {build.revision(pins.ROOT)}. Tolerance "
        f"{records.TOLERANCE:g}. {'All as expected.' if good else 'Not all as expected.'}"
    )
    common.print_page(
        "Scripts written for smdistributed, on the open implementation", told, COLUMNS, [row for row, _ in found]
    )
    print("\nNot run:\n")
    print("\n".join(f"- {script.strip()}: {why}." for script, why in NOT_RUN.items()))
    return 0 if good else 1


if __name__ == "__main__":
    program.end_with(main)
