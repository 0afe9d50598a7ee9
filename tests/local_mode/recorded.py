"""`make requests`: records the SDKs' requests for jobs and endpoints, reduced to the parts that reach the images.

tests/unit/train and tests/unit/serve read the files, so launch plans and server settings are tested with real requests,
without the SDKs. For an endpoint SDK v3 sends only what its user writes, so it is not recorded.
"""

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from berth.images.pins import pins
from tests.local_mode.sdk import run

PROGRAMS = {
    "tests/unit/train/requests.json": {2: "record_v2.py", 3: "record_v3.py"},
    "tests/unit/serve/requests.json": {2: "record_serving.py"},
}
"""File → SDK version → the program that makes the requests."""


def record(program: str, version: int, work: Path) -> Any:
    """The requests of a program with an SDK, by case."""
    requests, _ = run(Path(__file__).with_name(program), str(work), version=version, work=work)
    return requests


def read_recorded(file: str) -> Any:
    """The requests in a file, by SDK and case."""
    return json.loads((pins.ROOT / file).read_text())


def as_text(recorded: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Sorted JSON with a line per field of a request, so that diffs are readable."""
    sdks = []
    for sdk, requests in sorted(recorded.items()):
        entries = []
        for name, fields in sorted(requests.items()):
            lines = [f"   {json.dumps(field)}: {json.dumps(fields[field], sort_keys=True)}" for field in sorted(fields)]
            entries.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
        sdks.append(f" {json.dumps(sdk)}: {{\n" + ",\n".join(entries) + "\n }")
    return "{\n" + ",\n".join(sdks) + "\n}\n"


def main() -> None:
    for file, programs in PROGRAMS.items():
        recorded = {}
        for version, program in programs.items():
            with tempfile.TemporaryDirectory() as work, contextlib.redirect_stdout(sys.stderr):
                recorded[f"v{version}"] = record(program, version, Path(work))
        (pins.ROOT / file).write_text(as_text(recorded))
        print(f"{file}: {sum(map(len, recorded.values()))} requests")


if __name__ == "__main__":
    main()
