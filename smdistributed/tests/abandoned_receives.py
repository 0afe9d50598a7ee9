"""Runs in each rank of a launch: rank 0 fails in its own backward pass, while tensors are on their way."""

from contextlib import contextmanager, nullcontext

import pipeline_cases
import pipeline_models
import smdistributed.modelparallel.torch as smp
from smdistributed.modelparallel.torch import activation


@contextmanager
def once():
    """A context that can't be entered again, so that the second repetition of a forward pass fails."""
    yield


@smp.step
def train_step(model, *tensors):
    loss = pipeline_models.call("skips", model, tensors)[1]
    model.backward(loss)


def failed_step():
    """What is raised on this rank."""
    pipeline_cases.start({"partitions": 4, "microbatches": 2})
    plain = pipeline_models.build("skips")
    for each in (*plain.down, *plain.up):
        smp.set_activation_checkpointing(each)
    activation._contexts = lambda: (nullcontext(), once())
    return pipeline_cases.raised(train_step, smp.DistributedModel(plain), *pipeline_models.batch("skips", 0, 4))
