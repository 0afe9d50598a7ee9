"""Parses BuildKit's plain progress into steps: state, duration, and the last lines of the failed one.

`Progress.feed` takes the build's output line by line; it prints nothing.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from textwrap import shorten

# "#7 [deps 1/2] RUN ...", "#7 3.141 text", "#7 DONE 3.2s", "#7 CACHED", "#7 ERROR: ..."
LINE = re.compile(r"^#(\d+) (.*)$")
TITLE = re.compile(r"^\[(?:(\S+) )?(\d+)/(\d+)\] (.*)$")
TIMED = re.compile(r"^\d+\.\d+ (.*)$")
TAIL = 12


@dataclass
class BuildStep:
    """One step of a build; `stage` is empty for BuildKit's internal steps, such as loading the context."""

    number: int
    title: str
    stage: str = ""
    instruction: str = ""
    seconds: float | None = None
    cached: bool = False
    failed: bool = False
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))

    @property
    def ended(self) -> bool:
        return self.cached or self.failed or self.seconds is not None

    @property
    def name(self) -> str:
        """The stage, such as `deps-train`, if the step runs a layer's script; its instruction is long with mounts."""
        if "/tmp/layer/install.sh" in self.instruction or "/tmp/docker/layers/inputs.sh" in self.instruction:
            return self.stage
        what = shorten(self.instruction, 100, placeholder=" …")
        return f"{self.stage}: {what}" if self.stage else shorten(self.title, 100, placeholder=" …")


@dataclass
class Progress:
    """The steps seen so far, in the order of their first line."""

    steps: dict[int, BuildStep] = field(default_factory=dict)

    def feed(self, line: str) -> BuildStep | None:
        """Takes one line of output; returns the step whose state it changed: begun, done, cached or failed."""
        match = LINE.match(line.rstrip())
        if not match:
            return None
        number, text = int(match[1]), match[2]
        step = self.steps.get(number)
        if step is None:
            title = TITLE.match(text)
            step = BuildStep(
                number, text, stage=(title[1] or "") if title else "", instruction=title[4] if title else ""
            )
            self.steps[number] = step
            return step if title else None
        if text == "CACHED":
            step.cached, step.seconds = True, 0.0
        elif text.startswith("DONE"):
            step.seconds = float(text.removeprefix("DONE").strip().rstrip("s") or 0)
            step.cached = step.instruction.startswith("FROM ")  # the base is on the engine before a build starts
        elif text.startswith("ERROR"):
            step.failed = True
            step.tail.append(text)
        else:
            timed = TIMED.match(text)
            if timed and timed[1].strip():
                step.tail.append(timed[1])
            return None
        return step if step.stage or step.failed else None

    @property
    def layers(self) -> list[BuildStep]:
        """The steps of the Dockerfile, without BuildKit's internal ones."""
        return [step for step in self.steps.values() if step.stage]

    @property
    def summary(self) -> str:
        """The number of steps, and how many were cached: `23 steps, 21 of them cached`."""
        cached, steps = sum(step.cached for step in self.layers), len(self.layers)
        share = "all" if cached == steps else f"{cached} of them" if cached else "none"
        return f"{steps} steps, {share} cached"

    @property
    def failure(self) -> BuildStep | None:
        return next((step for step in self.steps.values() if step.failed), None)
