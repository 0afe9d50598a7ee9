"""BERTH_TRACE: where the time of a few steps goes, in files for ui.perfetto.dev and in a line of the log.

Each step is profiled by itself, from the fetch of its batches to its end, so that an evaluation between two steps is in
no file. All ranks end with the same step, and the first of them sums up.
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
from berth.train.run_qa.reporting.step_times import CATEGORIES, DATA_MARK, STEP_MARK, percentages, times_of


class TraceCallback(TrainerCallback):
    """Profiles `steps` of a training, which all ranks do alike; Trainer's fetch of a step's batches is to run in
    `fetching`.
    """

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
        """Waiting for the batches of `step`, counted from 1, with which the step begins."""
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
        """Say what can't be traced; and profile nothing once, which takes seconds the first time."""
        if state.global_step >= self.steps[-1] or self.steps[0] > state.max_steps:
            trained = f"steps {state.global_step + 1} to {state.max_steps}"
            self.say(f"trace: nothing is traced, because this job trains {trained} ({TRACE})")
            return
        with self._new_profile():
            pass
        ranks.gather([], self.rank)  # who was first would wait in the first step for the others

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """The step's end, and after the last one the files and the summary."""
        if state.global_step not in self.steps:
            return
        if self._cuda:
            torch.cuda.synchronize()  # else the step's kernels would run on into what follows
        self._open.close()
        if state.global_step == min(self.steps[-1], state.max_steps):
            self._finish()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Of a training that ended before the last of the steps, those that it had."""
        self._open.close()
        self._finish()

    def _new_profile(self) -> profile:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else a line on stderr for each start and end
        return profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._cuda else [])])

    def _finish(self) -> None:
        """Write this rank's files, and let rank 0 sum up; all ranks must come here together."""
        if not self._profiles:
            return
        seconds = dict.fromkeys(CATEGORIES, 0.0)
        steps, problem = list(self._profiles), ""
        try:
            for step, each in self._profiles.items():
                events = write_trace(each, self.folder / f"trace-rank-{self.rank.rank}-step-{step}.json.gz")
                for name, spent in times_of(events).items():
                    seconds[name] += spent
        except (OSError, ValueError) as error:  # a full disk is no reason to lose a training
            steps, problem = [], str(error)
        self._profiles.clear()
        mine = {"steps": steps, "seconds": seconds, "problem": problem}
        for line in summary(ranks.gather_to_leader(mine, self.rank) or [], self.folder):
            self.say(line)


def write_trace(profiled: profile, path: Path) -> list[dict[str, Any]]:
    """Write a profile as a Chrome trace, and return its events. Raises OSError or ValueError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    profiled.export_chrome_trace(str(path))
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return events


def summary(ranks_found: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """The lines of the log, of what each rank found: a mean over ranks, the least and the most of them in brackets."""
    lines = [
        f"warning: trace: the files of rank {rank} are not written: {each['problem']}"
        for rank, each in enumerate(ranks_found)
        if each["problem"]
    ]
    measured = [each for each in ranks_found if each["steps"]]
    if not measured:
        return lines
    steps = measured[0]["steps"]
    mean = {name: sum(each["seconds"][name] for each in measured) / len(measured) for name in CATEGORIES}
    shares = percentages(mean)
    of_each = [percentages(each["seconds"]) for each in measured]
    which = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    parts = [f"trace: {which}", f"step: {sum(mean.values()) / len(steps):.3f} s"]
    for name in CATEGORIES:
        values = [each[name] for each in of_each]
        spread = f" ({min(values)} to {max(values)})" if len(measured) > 1 else ""
        parts.append(f"{name}: {shares[name]} %{spread}")
    return [*lines, "  ".join(parts), f"trace: a file per rank and step for ui.perfetto.dev is in {folder}"]
