"""How well two partitions overlap: their time against the ideal that the bubble leaves, and bytes over the wire.

Usage: python -m bench.model_parallel_overlap [--rounds N] [> bench/results/….md]

A BERT of 12 layers on 2 ranks of one thread each, cut once by hand (coarse) and once automatically, with several
numbers of microbatches m. Ideal: (m + p - 1) / (m · p) of the time that one process with one thread takes for the same
microbatches, for p partitions. One process and the pipeline take turns; medians of the rounds, also of the ratio that
each round has. Least bytes: every tensor that a run of modules takes or gives, once for each microbatch and direction,
masks included. The machine must have two idle cores. Exit code 1 where a target is missed: 80 % of the ideal with the
coarse cut, 65 % with the automatic one, with each number of microbatches; 5 % more than the least bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bench import program, report
from bench.scripts import model_parallel_launch

PARTITIONS = 2
COARSE, AUTOMATIC, MOST_BYTES = 0.80, 0.65, 1.05
CUTS = ("coarse", "automatic")
COLUMNS = [
    "cut",
    "m",
    "one process, s",
    "2 partitions, s",
    "ideal, s",
    "of the ideal",
    "bytes",
    "least",
    "of the least",
]


def ideal(seconds: float, microbatches: int, partitions: int = PARTITIONS) -> float:
    """What the bubble leaves of one process' time; pure."""
    return (microbatches + partitions - 1) / (microbatches * partitions) * seconds


def ratio(found: Mapping[str, Any]) -> float:
    """Of the ideal's speed, what was reached; pure."""
    return ideal(found["speedup"], found["microbatches"])


def missed(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The targets that were not met, in words; pure."""
    wrong = []
    for count in sorted({each["microbatches"] for each in found}):
        of_count = [each for each in found if each["microbatches"] == count]
        coarse = [ratio(each) for each in of_count if each["cut"] == "coarse"]
        automatic = [ratio(each) for each in of_count if each["cut"] != "coarse"]
        for name, ratios, target in (("coarse", coarse, COARSE), ("automatic", automatic, AUTOMATIC)):
            if ratios and max(ratios) < target:
                reached = f"{max(ratios):.0%} of the ideal with {count} microbatches"
                wrong.append(f"the {name} cut reaches {reached}, {target:.0%} were to be reached")
    for each in found:
        if each["sent"] > MOST_BYTES * each["least"]:
            share = each["sent"] / each["least"]
            wrong.append(f"{each['cut']}, {each['microbatches']} microbatches: {share:.1%} of the least bytes")
    return wrong


def table(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row for each cut and number of microbatches; pure."""
    return [
        report.row(
            each["cut"],
            str(each["microbatches"]),
            f"{each['one']:.3f}",
            f"{each['two']:.3f}",
            f"{ideal(each['one'], each['microbatches']):.3f}",
            f"{ratio(each):.0%}",
            f"{each['sent']:,}",
            f"{each['least']:,}",
            f"{each['sent'] / each['least']:.1%}",
        )
        for each in found
    ]


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("model_parallel_overlap", __doc__)
    parser.add_argument("--microbatches", default="2,4,8", metavar="LIST", help="2,4,8")
    parser.add_argument("--rounds", type=program.positive, default=11, metavar="N", help="11, for medians")
    model_parallel_launch.add_sizes(parser, layers=12, hidden=512, rows=16, length=64, words=4000)
    asked = parser.parse_args(words)
    counts = [int(each) for each in asked.microbatches.split(",")]
    cases = [(cut, count) for cut in CUTS for count in counts]
    found = model_parallel_launch.run("overlaps", PARTITIONS, asked, cases=cases, rounds=asked.rounds)[0]
    told = model_parallel_launch.told("model_parallel_overlap", list(words), asked)
    problems = missed(found)
    said = f"Missed: {'; '.join(problems)}." if problems else "All targets are met."
    setting = f"{told} Medians of {asked.rounds}. {said}"
    print(report.page("Overlap of two partitions", [setting], *report.table(COLUMNS, table(found))))
    return 1 if problems else 0


if __name__ == "__main__":
    program.end_with(main)
