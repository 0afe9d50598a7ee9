"""Memory of each rank of a BERT with 1, 2 and 4 partitions, and what gathering its state and sending tensors add.

Usage: python -m bench.model_parallel_memory [--layers N] [--hidden N] [> bench/results/….md]

Bytes of parameters, gradients and AdamW's moments are counted after two steps. Activations are the peak of what
autograd keeps for the backward pass: each storage once, without parameters. How many microbatches are open on a rank at
once depends a little on timing. Gathering and sending are measured as the resident memory of each process. Ranks are
processes of this machine over gloo.
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


def gathering(ranks: Sequence[Mapping[str, int]]) -> list[str]:
    """A row per rank, in MB."""
    rows = [report.row(str(rank), *(f"{size / 1e6:,.1f}" for size in each.values())) for rank, each in enumerate(ranks)]
    return report.table(["rank", *ranks[0]], rows)


def sending(peaks: Mapping[int, Sequence[int]]) -> list[str]:
    """A row per rank, in MB. peaks: number of microbatches → peak memory of each rank."""
    few, many = sorted(peaks)
    rows = []
    for rank, (less, more) in enumerate(zip(peaks[few], peaks[many], strict=True)):
        rows.append(report.row(str(rank), *(f"{size / 1e6:,.1f}" for size in (less, more, more - less))))
    return report.table(["rank", f"{few} microbatches", f"{many} microbatches", "difference"], rows)


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
    most = max(by_partitions)
    gathered = model_parallel_launch.run("gathered", most, options, partitions=most)
    sent = {count: model_parallel_launch.call("peak_of_sends", 2, microbatches=count) for count in (10, 100)}
    lines = [
        *report.table(COLUMNS, table(by_partitions)),
        "",
        f"Growth of resident memory while the states of {most} partitions are gathered; `save_checkpoint` also gathers "
        "AdamW's states:",
        "",
        *gathering(gathered),
        "",
        "Peak of resident memory after a step with `active_microbatches: 1`, without the batch; a microbatch sends "
        "1 MiB in each direction:",
        "",
        *sending(sent),
    ]
    print(report.page("Memory of each rank of a pipeline", [setting], *lines))
    return 0


if __name__ == "__main__":
    program.end_with(main)
