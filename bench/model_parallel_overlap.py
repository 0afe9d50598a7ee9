"""How well two partitions overlap: their time against the ideal pipeline, and the bytes that they send.

Usage: python -m bench.model_parallel_overlap [--rounds N] [> bench/results/….md]

A BERT of 12 layers runs on 2 ranks with one thread each. It is split once by hand (coarse) and once automatically, with
several numbers of microbatches m. The ideal for p partitions is (m + p - 1) / (m · p) of the time that one process with
one thread takes for the same microbatches. "Both busy": the ideal from the time of one process while a second one does
the same on the other core, which takes what the cores share. One process, two of them and the pipeline alternate;
figures are medians of the rounds, also of each round's ratio. Least bytes: every tensor that a run of modules takes or
returns, once per microbatch and direction, masks included. The machine must have two idle cores. Exit code 1 if a
target is missed: 80 % of the ideal with the coarse split, 65 % with the automatic one, at every number of microbatches;
at most 5 % more than the least bytes.

A second table has layers that sleep, 0.05 s forward and 0.1 s backward, one per partition. It shows what is lost by the
order in which the ranks work and by messages, without what cores share. A third table has the time to post control
messages that nobody reads yet; with the number of messages it must not grow faster than by MOST_POSTING.
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
    "of the ideal, both busy",
    "bytes",
    "least",
    "of the least",
]
SLEEPING, SLEEPING_ROUNDS = (2, 4, 8), 5
FORWARD, BACKWARD = 0.05, 0.1
"""Seconds of each layer of bench.scripts.sleeping_layers, which only ranks can import."""
POSTED, MOST_POSTING = (1_000, 4_000), 5
"""Numbers of control messages, and the largest ratio of their times."""
SLEEPING_COLUMNS = ["sleeping partitions", "m", "ideal, s", "interleaved, s (of the ideal)", "simple, s (of the ideal)"]


def ideal(seconds: float, microbatches: int, partitions: int = PARTITIONS) -> float:
    """The time of an ideal pipeline, from the time of one process."""
    return (microbatches + partitions - 1) / (microbatches * partitions) * seconds


def ratio(case: Mapping[str, Any], reference: str = "one") -> float:
    """The reached share of the ideal's speed. reference: one process, or both."""
    return ideal(case[f"{reference} by two"], case["microbatches"])


def missed(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence per missed target."""
    wrong = []
    for count in sorted({each["microbatches"] for each in cases}):
        same_count = [each for each in cases if each["microbatches"] == count]
        coarse = [ratio(each) for each in same_count if each["cut"] == "coarse"]
        automatic = [ratio(each) for each in same_count if each["cut"] != "coarse"]
        for name, ratios, target in (("coarse", coarse, COARSE), ("automatic", automatic, AUTOMATIC)):
            if ratios and max(ratios) < target:
                reached = f"{max(ratios):.0%} of the ideal with {count} microbatches"
                wrong.append(f"the {name} cut reaches {reached}, the target is {target:.0%}")
    for each in cases:
        if each["sent"] > MOST_BYTES * each["least"]:
            share = each["sent"] / each["least"]
            wrong.append(f"{each['cut']}, {each['microbatches']} microbatches: {share:.1%} of the least bytes")
    return wrong


def table(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row per cut and number of microbatches."""
    return [
        report.row(
            each["cut"],
            str(each["microbatches"]),
            f"{each['one']:.3f}",
            f"{each['two']:.3f}",
            f"{ideal(each['one'], each['microbatches']):.3f}",
            f"{ratio(each):.0%}",
            f"{ratio(each, 'both'):.0%}",
            f"{each['sent']:,}",
            f"{each['least']:,}",
            f"{each['sent'] / each['least']:.1%}",
        )
        for each in cases
    ]


def sleeping(partitions: int, microbatches: int, rounds: int) -> str:
    """A row of sleeping layers."""
    whole = (microbatches + partitions - 1) * (FORWARD + BACKWARD)
    seconds = [
        model_parallel_launch.call(
            "sleeping", partitions, partitions=partitions, microbatches=microbatches, pipeline=pipeline, rounds=rounds
        )[0]
        for pipeline in ("interleaved", "simple")
    ]
    return report.row(
        partitions, microbatches, f"{whole:.2f}", *(f"{each:.2f} ({whole / each:.0%})" for each in seconds)
    )


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("model_parallel_overlap", __doc__)
    parser.add_argument("--microbatches", default="2,4,8", metavar="LIST", help="2,4,8")
    parser.add_argument("--rounds", type=program.positive, default=11, metavar="N", help="11, for medians")
    model_parallel_launch.add_sizes(parser, layers=12, hidden=512, rows=16, length=64, words=4000)
    options = parser.parse_args(words)
    counts = [int(each) for each in options.microbatches.split(",")]
    cases = [(cut, count) for cut in CUTS for count in counts]
    results = model_parallel_launch.run(
        "overlaps", PARTITIONS, options, model_parallel_launch.KEPT, cases=cases, rounds=options.rounds
    )[0]
    slept = [sleeping(partitions, max(counts), min(options.rounds, SLEEPING_ROUNDS)) for partitions in SLEEPING]
    posted = model_parallel_launch.call("posting", 2, counts=POSTED, rounds=options.rounds)[0]
    problems = missed(results)
    if posted[1] > MOST_POSTING * posted[0]:
        problems.append(f"posting {POSTED[1]:,} messages takes {posted[1] / posted[0]:.1f} times {POSTED[0]:,}")
    verdict = f"Missed: {'; '.join(problems)}." if problems else "All targets are met."
    machine = model_parallel_launch.setting("model_parallel_overlap", words, options)
    setting = f"{machine} Medians of {options.rounds} rounds. {verdict}"
    tables = *report.table(COLUMNS, table(results)), "", *report.table(SLEEPING_COLUMNS, slept), ""
    messages = [report.row(f"{count:,}", f"{1e3 * each:.1f}") for count, each in zip(POSTED, posted, strict=True)]
    tables = *tables, *report.table(["control messages", "posted in, ms"], messages)
    print(report.page("Overlap of partitions", [setting], *tables))
    return 1 if problems else 0


if __name__ == "__main__":
    program.end_with(main)
