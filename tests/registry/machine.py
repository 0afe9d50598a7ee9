"""A user's machine in the tests of whole commands: `build.py` runs as a process with an environment of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.images.pins import pins
from tests.registry.ecr_double import EcrDouble

PROFILE = os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE)
"""The profile of the images under test."""
BUILD = [sys.executable, str(pins.ROOT / "build.py")]


@dataclass
class Machine:
    """A home folder, which also has the record of pushes, and a double of ECR."""

    home: Path
    ecr: EcrDouble

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "DOCKER_HOST") if name in os.environ}
        return {**kept, "HOME": str(self.home), "BERTH_DIST": str(self.home / "dist"), **self.ecr.environment, **more}

    def build_py(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of build.py."""
        return subprocess.run(
            [*BUILD, *words], env=self.environment(**more), capture_output=True, text=True, timeout=600
        )

    def push(self, *words: str) -> list[dict[str, Any]]:
        """Pushes the images under test without testing them; returns the JSON output."""
        done = self.build_py("push", *words, "--profile", PROFILE, "--no-test", "--json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found
