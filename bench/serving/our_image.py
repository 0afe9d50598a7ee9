"""Our inference image as the programs of bench/ measure it: its options, its variants, and a warm-up."""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path

from bench.program import positive
from bench.serving import sides
from bench.serving.load import closed_loop
from bench.serving.sides import Side
from berth.common.errors import UserError
from berth.images.pins import pins

SEED = 20
"""Of the list of requests, and of the moments at which an open loop sends them."""
WARM_UP, WARM_UP_AT_ONCE = 100, 8


def add_options(parser: argparse.ArgumentParser) -> None:
    """What says how our image is run, and with what."""
    parser.add_argument("--model", type=Path, required=True, help="a model folder or model.tar.gz")
    parser.add_argument("--image", default=f"berth-serve:{pins.DEFAULT_PROFILE}", help="default: %(default)s")
    parser.add_argument(
        *("--environment", "-e"), action="append", default=[], metavar="NAME=VALUE", help="of our container"
    )
    parser.add_argument("--requests", type=positive, default=400, help="in each load (default: %(default)s)")
    parser.add_argument("--cores", help="for server and client, such as 0,1 (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there as well")


def our_sides(options: argparse.Namespace, variants: Sequence[Sequence[str]], scratch: Path) -> list[Side]:
    """Ours and its variants, their models unpacked below `scratch`."""
    ours = Side("ours", options.image, options.model, sides.parse_environment(options.environment))
    found = [ours, *(sides.parse_variant(words, ours) for words in variants)]
    if len({side.name for side in found}) < len(found):
        raise UserError("two variants have one name: give each its own.")
    homes = {
        model: sides.model_at_hand(model, scratch / str(number))
        for number, model in enumerate(dict.fromkeys(side.model for side in found))
    }
    return [Side(side.name, side.image, homes[side.model], side.environment) for side in found]


def warm_up(port: int, bodies: Sequence[bytes]) -> None:
    """The first 100 requests, 8 at once, or as many of them over and over."""
    closed_loop(port, list(itertools.islice(itertools.cycle(bodies), WARM_UP)), WARM_UP_AT_ONCE)
