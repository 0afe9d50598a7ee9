"""software.json, next to a profile's locks: what its image keeps of its software set, for berth.runtime.software."""

import json
from collections.abc import Sequence
from pathlib import Path

from berth.common.files import atomic_write, explain_os_errors
from berth.images.pins import Profile

FILE = "software.json"


def software_json(profile: Profile) -> str:
    """The text of a profile's software.json."""
    software = profile.software
    document = {"name": software.name, "profile": profile.name, "environment": dict(software.environment)}
    return f"{json.dumps(document, indent=2)}\n"


def render_software(profiles: Sequence[Profile], locks: Path) -> list[Path]:
    """Writes software.json of these profiles into their folders in `locks`; the paths."""
    paths = []
    for profile in profiles:
        path = locks / profile.name / FILE
        with explain_os_errors(path.parent, path.name):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as new:
                new.write_text(software_json(profile))
        paths.append(path)
    return paths
