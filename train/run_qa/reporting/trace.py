"""BERTH_TRACE: profiles a few steps; writes files for ui.perfetto.dev and a line to the log.

Each step is profiled separately, from the fetch of its batches to its end, so an evaluation between two steps is not
included. All ranks profile the same steps, and rank 0 writes the summary.
"""

import gzip
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from berth.contract.launch_options import TRACE
from berth.runtime.rank import Rank
from berth.train.run_qa import ranks
from berth.train.run_qa.reporting.step_times import CATEGORIES, DATA_MARK, STEP_MARK, times_of


class TraceCallback(TrainerCallback):
    """Profiles the `steps` of a training, the same on all ranks. Trainer must fetch a step's batches in `fetching`."""

    def __init__(self, steps: range, folder: Path, rank: Rank, say: Callable[[str], None], *, cuda: bool) -> None:
        self.steps = steps
        self.folder = folder
        self.rank = rank
        self.say = say
        self._cuda = cuda
        self._open = ExitStack()
        self._profiles: dict[int, profile] = {}  # by step

    @contextmanager
    def fetching(self, step: int) -> Iterator[None]:
        """Profile `step` (counted from 1) from here on; the code inside fetches its batches."""
        if step not in self.steps:
            yield
            return
        self._open.close()
        self._profiles[step] = self._open.enter_context(self._new_profile())
        self._open.enter_context(record_function(f"{STEP_MARK}{step}"))
        with record_function(DATA_MARK):
            yield

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Log if nothing can be traced; else start a profiler once, because the first start takes seconds."""
        if state.global_step >= self.steps[-1] or self.steps[0] > state.max_steps:
            trained = f"steps {state.global_step + 1} to {state.max_steps}"
            self.say(f"trace: nothing is traced, because this job trains {trained} ({TRACE})")
            return
        with self._new_profile():
            pass
        ranks.gather([], self.rank)  # wait here: otherwise the first step would include waiting for slower ranks

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """End the step's profile; after the last one, write the files and the summary."""
        if state.global_step not in self.steps:
            return
        if self._cuda:
            torch.cuda.synchronize()  # otherwise the step's last kernels would not be in its profile
        self._open.close()
        if state.global_step == min(self.steps[-1], state.max_steps):
            self._finish()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Write what was profiled if the training ends before the last of the steps."""
        self._open.close()
        self._finish()

    def _new_profile(self) -> profile:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # without it kineto writes to stderr at each start and end
        return profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._cuda else [])])

    def _finish(self) -> None:
        """Write this rank's files, and the summary on rank 0; all ranks must call it together."""
        profiles, self._profiles = self._profiles, {}
        if not profiles:
            return
        mine: dict[str, Any] = {"seconds": [], "problem": ""}
        try:
            for step, profiled in profiles.items():
                events = write_trace(profiled, self.folder / f"trace-rank-{self.rank.rank}-step-{step}.json.gz")
                mine["seconds"].append(times_of(events))
        except (OSError, ValueError) as error:  # a full disk must not end the training
            mine["problem"] = str(error)
        for line in summary(list(profiles), ranks.gather(mine, self.rank), self.folder):
            self.say(line)


def write_trace(profiled: profile, path: Path) -> list[dict[str, Any]]:
    """Write a profile as a Chrome trace, and return its events. Raises OSError or ValueError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    profiled.export_chrome_trace(str(path))
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return events


def summary(steps: Sequence[int], results: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """Log lines: the mean over ranks, with the minimum and maximum in brackets.

    results: of each rank, the `seconds` by category of each step, or the `problem`.
    """
    lines = [
        f"warning: trace: the files of rank {rank} are not written: {result['problem']}"
        for rank, result in enumerate(results)
        if result["problem"]
    ]
    measured = [
        {name: sum(step[name] for step in result["seconds"]) for name in CATEGORIES}
        for result in results
        if not result["problem"]
    ]
    if not measured:
        return lines
    totals = [sum(seconds.values()) for seconds in measured]
    which = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    parts = [f"trace: {which}", f"step: {sum(totals) / len(totals) / len(steps):.3f} s"]
    for name in CATEGORIES:
        shares = [100 * seconds[name] / total for seconds, total in zip(measured, totals, strict=True)]
        spread = f" ({min(shares):.0f} to {max(shares):.0f})" if len(shares) > 1 else ""
        parts.append(f"{name}: {sum(shares) / len(shares):.0f} %{spread}")
    return [*lines, "  ".join(parts), f"trace: files for ui.perfetto.dev, one per rank and step: {folder}"]
