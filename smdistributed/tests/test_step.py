"""Splitting a batch into microbatches, and the outputs of a step."""

import copy
from collections import OrderedDict, UserDict, namedtuple
from inspect import signature

import pytest
import torch

from berth.smdistributed.modelparallel.torch.step import StepOutput, merged, slice_of, step

Pair = namedtuple("Pair", "left right")


class Own:
    def __init__(self, data):
        self.data = data

    def smp_slice(self, num_mb, mb, axis):
        return Own(slice_of(self.data, num_mb, mb, axis))


def test_tensors_in_containers_are_split() -> None:
    whole = torch.arange(8).view(4, 2)
    value = {"a": [whole, (whole, 3)], "b": Pair(whole, "text"), "c": UserDict({"d": whole}), "e": torch.tensor(5)}
    part = slice_of(value, 2, 1)
    assert torch.equal(part["a"][0], whole[2:])
    assert part["a"][1][1] == 3
    assert isinstance(part["b"], Pair)
    assert torch.equal(part["b"].left, whole[2:])
    assert isinstance(part["c"], UserDict)
    assert torch.equal(part["c"]["d"], whole[2:])
    assert part["e"] == 5
    assert torch.equal(value["c"]["d"], whole), "the batch itself must not change"


def test_axis_and_own_smp_slice_method() -> None:
    whole = torch.arange(8).view(2, 4)
    assert torch.equal(slice_of(whole, 4, 3, axis=1), whole[:, 3:])
    assert torch.equal(slice_of(Own(whole), 2, 0).data, whole[:1])


def test_indivisible_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match="A batch of 5 can't be split into 2 microbatches"):
        slice_of(torch.zeros(5), 2, 0)
    with pytest.raises(ValueError, match="has no axis 1"):
        slice_of(torch.zeros(4), 2, 0, axis=1)


def test_merged_keeps_containers() -> None:
    outputs = merged([{"loss": torch.tensor(float(each)), "rest": [torch.ones(2) * each, each]} for each in range(3)])
    assert outputs["loss"].reduce_mean() == 1.0
    assert outputs["loss"].reduce_sum() == 3.0
    assert torch.equal(outputs["loss"].concat(), torch.tensor([0.0, 1.0, 2.0]))
    assert outputs["rest"][0].concat().shape == (6,)
    assert outputs["rest"][0].stack().shape == (3, 2)
    assert outputs["rest"][1] == [0, 1, 2]
    assert merged([None, None]) is None
    assert isinstance(merged([OrderedDict(a=torch.ones(1))]), OrderedDict)
    assert isinstance(merged([Pair(torch.ones(1), 1)]), Pair)


def test_step_output_reduces_and_detaches() -> None:
    output = StepOutput([torch.tensor([1, 2]), torch.tensor([3, 5])])
    assert torch.equal(output.reduce_mean(), torch.tensor([2.0, 3.5])), "integers must have a mean"
    graph = torch.ones(1, requires_grad=True) * 2
    assert not StepOutput([graph]).detach().outputs[0].requires_grad
    assert (len(output), [list(each) for each in output]) == (2, [[1, 2], [3, 5]])
    assert output[1] is output.outputs[1]


def test_step_output_used_as_tensor_is_an_error() -> None:
    output = StepOutput([torch.tensor(1.0), torch.tensor(3.0)])
    assert repr(output) == "<StepOutput of 2 microbatches, of which reduce_mean() makes a loss, concat() logits>"
    with pytest.raises(AttributeError, match=r"item needs one tensor, and a step returns one per microbatch"):
        output.item()
    with pytest.raises(AttributeError, match="'StepOutput' object has no attribute 'items'"):
        output.items()
    with pytest.raises(TypeError, match=r"one per microbatch: reduce_mean\(\) makes a loss"):
        float(output)
    assert copy.deepcopy(output).outputs == output.outputs


def test_unknown_argument_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no argument 'masc'; correct the name"):
        step(lambda mask: mask, non_split_inputs=["masc"])


def test_step_without_model_is_an_error() -> None:
    @step(input_split_axes={"x": 1})
    def train_step(x):
        return x

    with pytest.raises(RuntimeError, match=r"before a model was wrapped; wrap it with smp\.DistributedModel"):
        train_step(torch.ones(2))


def test_step_in_class_gets_instance_only_as_self() -> None:
    class Loop:
        @step
        def without_self(model):
            return model

        @step()
        def with_self(self, model):
            return model

    loop = Loop()
    assert [list(signature(each).parameters) for each in (loop.without_self, loop.with_self)] == [["model"]] * 2
