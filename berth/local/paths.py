"""Recognises addresses, and model names on the hub, that were passed as paths."""

import re
from pathlib import Path

from berth.common.errors import UserError

# pathlib turns two slashes into one.
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)")
_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")


def refuse_address(path: Path) -> None:
    """UserError for s3://bucket/data and the like, which would be treated as a folder named s3:."""
    match = _ADDRESS.fullmatch(str(path))
    if match is None:
        return
    scheme, rest = match.groups()
    if scheme == "file":
        raise UserError(f"file:///{rest} is an address: write only the path, /{rest}.")
    address = f"{scheme}://{rest}"
    how = f" (`aws s3 cp --recursive {address} FOLDER` copies from S3)" if scheme == "s3" else ""
    raise UserError(f"{address} is an address, but only files and folders of this machine can be used{how}.")


def is_hub_name(path: Path) -> bool:
    """Whether a missing path may be the name of a model on the hub, such as bert-base-uncased."""
    return _HUB_NAME.fullmatch(str(path)) is not None and not str(path).endswith((".tar.gz", ".tgz"))
