"""Memory of each rank of a BERT with 1, 2 and 4 partitions.

Usage: python -m bench.model_parallel_memory [--layers N] [--hidden N] [> bench/results/….md]

Bytes of parameters, gradients and AdamW's moments are counted after two steps. Activations are the peak of what
autograd keeps for the backward pass: each storage once, without parameters. How many microbatches are open on a rank at
once depends a little on timing. Ranks are processes of this machine over gloo.
"""

from collections.abc import Mapping, Sequence

from bench import program, report
from bench.scripts import model_parallel_launch

KINDS = ("parameters", "gradients", "optimizer", "activations")
COLUMNS = ["partitions", "rank", *KINDS, "total", "of one partition's"]


def table(by_partitions: Mapping[int, Sequence[Mapping[str, int]]]) -> list[str]:
    """A row per rank and number of partitions, in MB."""
    first = by_partitions[min(by_partitions)]
    whole = max(sum(each.values()) for each in first)
    rows = []
    for partitions, ranks in by_partitions.items():
        for rank, each in enumerate(ranks):
            total = sum(each[kind] for kind in KINDS)
            sizes = [f"{size / 1e6:,.1f}" for size in (*(each[kind] for kind in KINDS), total)]
            rows.append(report.row(str(partitions), str(rank), *sizes, f"{total / whole:.0%}"))
    return rows


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("model_parallel_memory", __doc__)
    parser.add_argument("--partitions", default="1,2,4", metavar="LIST", help="1,2,4")
    parser.add_argument(
        "--microbatches", type=program.positive, default=4, metavar="N", help="microbatches of a step; 4"
    )
    model_parallel_launch.add_sizes(parser, layers=12, hidden=768, rows=8, length=128, words=30522)
    options = parser.parse_args(words)
    by_partitions = {
        partitions: model_parallel_launch.run(
            "memory", partitions, options, partitions=partitions, microbatches=options.microbatches
        )
        for partitions in map(int, options.partitions.split(","))
    }
    described = model_parallel_launch.setting("model_parallel_memory", words, options)
    setting = (
        f"{described} {options.microbatches} microbatches, AdamW, automatic partition by parameters. One partition has "
        "one open microbatch, p partitions have at most p + 2 (option `active_microbatches`). MB (1e6 bytes)."
    )
    print(report.page("Memory of each rank of a pipeline", [setting], *report.table(COLUMNS, table(by_partitions))))
    return 0


if __name__ == "__main__":
    program.end_with(main)
