"""Why shard a model: memory, bytes and time of a step with tensor parallelism and sharding, next to torch's own.

Usage: python -m bench.model_parallel_sharding [--rounds N] [> bench/results/….md]

Each way trains the same BERT with AdamW and the same batch: one process, the library's options on 2 and 4 ranks, and on
2 ranks torch's DTensor styles and fully_shard (FSDP2) without the library. Memory is the peak of a process' resident
memory during steps, less what it had before the model was made. Bytes are those that all ranks send in a step,
counted by the kernel in a network of its own, next to a formula. The last table is measured in one launch, in which
tensor parallelism, DTensor and FSDP2 take turns. Needs root, for the network.
"""

import ctypes
import fcntl
import socket
import statistics
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from bench import program, report
from bench.scripts import model_parallel_launch
from berth.common.errors import UserError

TP, PP = {"tensor_parallel_degree": 2}, {"pipeline_parallel_degree": 2, "microbatches": 2}
PRESCALED = {"prescaled_batch": True}
SDP = {"sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0}
WAYS: Sequence[tuple[str, int, Mapping[str, Any]]] = (
    ("one process", 1, {}),
    ("tensor parallel 2, one batch", 2, {**TP, **PRESCALED}),
    ("tensor parallel 2, own batches", 2, TP),
    ("replicas 2", 2, {}),
    ("replicas 2, sharded optimizer", 2, {"shard_optimizer_state": True}),
    ("sharded 2", 2, SDP),
    ("partitions 2", 2, PP),
    ("tensor parallel 2 × partitions 2, one batch", 4, {**TP, **PP, **PRESCALED}),
    ("DTensor", 2, {}),
    ("FSDP2", 2, {}),
)
"""Name, number of ranks, options."""
COLUMNS = ["way", "parameters per rank", "moments", "peak, MiB", "of one process'", "sent, MiB", "formula", "ms"]
_CLONE_NEWNET = 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1


def enter_own_network() -> None:
    """Move this process into a network of its own, with a loopback interface only. UserError without root."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise UserError("The bytes of a step can't be counted without a network of their own: run this as root.")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback:
        name = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(loopback, _GET_FLAGS, name))
        fcntl.ioctl(loopback, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def expected_bytes(name: str, options: Any, least: float) -> float | None:
    """The bytes of a step by a formula, over gloo; None if there is none.

    least: the least bytes between partitions. hidden: the bytes of the batch's hidden states. A sum over two ranks
    sends its size once from each. A layer has two sums in the forward pass and two in the backward pass; the split word
    embeddings have one. Gradients of whole parameters are averaged. fully_shard gathers all parameters in the forward
    pass and those of layers again in the backward pass, and its reduce-scatter is a sum over gloo.
    """
    hidden = 4.0 * options.rows * options.length * options.hidden
    sizes = parameter_bytes(options)
    whole, everything, root = sizes["whole"], sizes["all"], sizes["root"]
    sums = (4 * options.layers + 1) * 2 * hidden
    tokens = 8.0 * options.rows * options.length
    return {
        "one process": 0.0,
        "tensor parallel 2, one batch": sums + 2 * whole,
        "tensor parallel 2, own batches": sums + 2 * whole + hidden + 2 * tokens,
        "replicas 2": 2 * everything,
        "replicas 2, sharded optimizer": 3 * everything,
        "sharded 2": 4 * everything - root,
        "partitions 2": least,
        "tensor parallel 2 × partitions 2, one batch": sums + 2 * whole + least,
        "FSDP2": 4 * everything - root,
    }.get(name)


def parameter_bytes(options: Any) -> Mapping[str, float]:
    """Bytes of the BERT's parameters: all, those that tensor parallelism leaves whole, those outside of layers."""
    width, inner = options.hidden, 4 * options.hidden
    words, head = options.words * width, 2 * width + 2
    embeddings = 512 * width + 2 * width + 2 * width  # positions, token types, norm
    layer_whole = 2 * width + 4 * width  # biases of both outputs, two norms
    layer_split = 4 * width * width + 3 * width + 2 * width * inner + inner
    root = words + embeddings + head
    whole = embeddings + head + options.layers * layer_whole
    return {
        "all": 4.0 * (root + options.layers * (layer_whole + layer_split)), "whole": 4.0 * whole, "root": 4.0 * root
    }  # fmt: skip


def row(name: str, ranks: Sequence[Mapping[str, float]], alone: float, expected: float | None) -> str:
    """A row of the table; of several ranks the largest peak, and the parts of all."""
    peak = max(each["peak"] for each in ranks)
    parts = (" ".join(f"{each[kind]:.2f}" for each in ranks) for kind in ("parameters", "moments"))
    sent = statistics.median(each["sent"] for each in ranks)
    formula = "–" if expected is None else f"{expected / 2**20:.2f}"
    milliseconds = 1e3 * statistics.median(each["seconds"] for each in ranks)
    return report.row(
        name,
        *parts,
        f"{peak / 2**20:.0f}",
        f"{peak / alone:.2f}",
        f"{sent / 2**20:.2f}",
        formula,
        f"{milliseconds:.0f}",
    )


def turns(ranks: Sequence[Mapping[str, Sequence[float]]]) -> list[str]:
    """Median seconds of a step, and the median of each round's ratio to the library's."""
    first = ranks[0]
    rows = []
    for name, seconds in first.items():
        ratio = statistics.median(own / each for own, each in zip(first["library"], seconds, strict=True))
        rows.append(report.row(name, f"{1e3 * statistics.median(seconds):.0f}", f"{ratio:.2f}"))
    return report.table(["", "ms", "library's time / this time"], rows)


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("model_parallel_sharding", __doc__)
    parser.add_argument("--rounds", type=program.positive, default=15, metavar="N", help="rounds of the last table; 15")
    model_parallel_launch.add_sizes(parser, layers=8, hidden=512, rows=8, length=64, words=4000)
    options = parser.parse_args(words)
    enter_own_network()
    rows, alone = [], 0.0
    for name, size, config in WAYS:
        ranks = model_parallel_launch.run("way", size, options, way=name, config=config)
        alone = alone or max(each["peak"] for each in ranks)
        rows.append(row(name, ranks, alone, expected_bytes(name, options, ranks[0]["least"])))
    pairs = model_parallel_launch.run("paired", 2, options, config={**TP, **PRESCALED}, rounds=options.rounds)
    setting = model_parallel_launch.setting("model_parallel_sharding", words, options) + " AdamW. MiB: 2^20 bytes."
    lines = [*report.table(COLUMNS, rows), "", "In turns, two ranks, one batch:", "", *turns(pairs)]
    print(report.page("Memory, bytes and time of sharded training", [setting], *lines))
    return 0


if __name__ == "__main__":
    program.end_with(main)
