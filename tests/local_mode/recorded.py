"""`make requests`: has both SDKs make their requests for jobs, and writes what of them reaches the image.

tests/unit/train reads that: a launch plan is tested on what the SDKs really send, without them.
"""

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from berth.images import pins
from tests.local_mode.sdk import run

FILE = pins.ROOT / "tests/unit/train/requests.json"


def record(version: int, work: Path) -> Any:
    """The requests of that SDK, by case."""
    requests, _ = run(Path(__file__).with_name(f"record_v{version}.py"), str(work), version=version, work=work)
    return requests


def as_text(recorded: dict[str, dict[str, dict[str, Any]]]) -> str:
    """JSON, sorted, with a line for each field of a request: short enough to read, and a change is a line."""
    sdks = []
    for sdk, requests in sorted(recorded.items()):
        entries = []
        for name, fields in sorted(requests.items()):
            lines = [f"   {json.dumps(field)}: {json.dumps(fields[field], sort_keys=True)}" for field in sorted(fields)]
            entries.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
        sdks.append(f" {json.dumps(sdk)}: {{\n" + ",\n".join(entries) + "\n }")
    return "{\n" + ",\n".join(sdks) + "\n}\n"


def main() -> None:
    recorded = {}
    for version in (2, 3):
        with tempfile.TemporaryDirectory() as work, contextlib.redirect_stdout(sys.stderr):
            recorded[f"v{version}"] = record(version, Path(work))
    FILE.write_text(as_text(recorded))
    print(f"{FILE.relative_to(pins.ROOT)}: {sum(map(len, recorded.values()))} requests")


if __name__ == "__main__":
    main()
