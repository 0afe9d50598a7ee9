"""`fsdp` on ranks without a GPU: torch's fully_shard, called here.

accelerate 1.15 knows FSDP on accelerators alone (its state.py), and Trainer then trains plain DDP without a word. While
such a job trains, each rank holds its part of every weight, of its gradient and of the optimizer's state. For all else,
evaluation, checkpoints and the model at the end, the weights are gathered, and written as every other job's are: such a
checkpoint goes on with or without fsdp, on any number of ranks.
"""

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor

from berth.train.finetune.ranks import gather
from berth.train.finetune.trainer import QuestionAnsweringTrainer


def shard(model: torch.nn.Module) -> None:
    """Spread a model's parameters over all ranks, in place: the word embeddings, each layer, and the rest.

    Layers are the elements of the outermost lists of modules, which every encoder has.
    """
    from torch.distributed.fsdp import fully_shard  # not in torch 2.5, which profile cu124 has

    # Said, for on a host with GPUs that use_cpu leaves out fully_shard would take those.
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    units = [model.get_input_embeddings(), *_layers(model), model]  # type: ignore[operator]
    for unit in units:
        fully_shard(unit, mesh=mesh)


def _layers(module: torch.nn.Module) -> list[torch.nn.Module]:
    if isinstance(module, torch.nn.ModuleList):
        return list(module)
    return [layer for child in module.children() for layer in _layers(child)]


def skeleton(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of a model that holds no weights, for `gathered`; its buffers are there."""
    bare = {id(weight): torch.nn.Parameter(weight.to("meta"), weight.requires_grad) for weight in model.parameters()}
    return copy.deepcopy(model, bare)


def gathered(model: torch.nn.Module, bare: torch.nn.Module) -> torch.nn.Module:
    """The whole of a sharded model, as a plain model on every rank; all ranks must call it."""
    whole = copy.deepcopy(bare)
    whole.load_state_dict({name: _whole(value) for name, value in model.state_dict().items()}, assign=True)
    return whole


def _whole(value: Any) -> Any:
    """A tensor as one process would have it; all ranks must call it in the same order."""
    return value.full_tensor().detach() if isinstance(value, DTensor) else value


def _whole_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """What `optimizer.state_dict()` gives, of whole tensors."""
    of_parameters = {
        index: {name: _whole(value) for name, value in values.items()} for index, values in state["state"].items()
    }
    return {**state, "state": of_parameters}


def _own_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """What `optimizer.load_state_dict()` takes of whole tensors: this rank's parts of them."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    of_parameters = {
        index: {name: _part(value, parameters[index]) for name, value in values.items()}
        for index, values in state["state"].items()
    }
    return {**state, "state": of_parameters}


def _part(value: Any, parameter: Any) -> Any:
    if isinstance(parameter, DTensor) and isinstance(value, torch.Tensor) and value.shape == parameter.shape:
        return distribute_tensor(value, parameter.device_mesh, parameter.placements)
    return value


class ShardedTrainer(QuestionAnsweringTrainer):
    """Trains a sharded model; once it has trained, its model is whole again."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        # Trainer's own name for a model that nobody else is to wrap or to move, and that is sharded when it comes.
        # It would refuse checkpoints of one, which are written here, so it is told only now.
        self.is_distributed_loading_by_transformers = True
        self._skeleton: torch.nn.Module | None = None  # while the model is sharded

    def _prepare_for_training(self, *arguments: Any, **named: Any) -> Any:
        """Before the optimizer is made, and after a checkpoint's weights were read."""
        total = sum(weight.numel() for weight in self.bare_model.parameters())
        self._skeleton = skeleton(self.bare_model)
        shard(self.bare_model)
        mine = sum(weight.to_local().numel() for weight in self.bare_model.parameters() if isinstance(weight, DTensor))
        held = gather(mine, self.rank)
        self.lines.say(f"fsdp: of the model's {total} parameters each rank trains {min(held)} to {max(held)}")
        return super()._prepare_for_training(*arguments, **named)  # type: ignore[no-untyped-call]

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """An optimizer that writes and reads its state whole."""
        optimizer = super().create_optimizer(model)
        optimizer.register_state_dict_post_hook(_whole_state)
        optimizer.register_load_state_dict_pre_hook(_own_state)
        return optimizer

    def _defer_fsdp_gradient_reduction(self) -> Any:
        """Trainer's looks for settings of its own: this is the case of no replicas."""
        return _NoSync(self.bare_model)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        return _whole(super()._get_grad_norm(model, grad_norm))  # type: ignore[no-untyped-call]

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self.args.should_save and self.optimizer is not None:
            self.optimizer.state_dict()  # takes part where rank 0 gathers it
        super()._save_optimizer_and_scheduler(output_dir)

    def save_model(self, *arguments: Any, **named: Any) -> None:
        """A checkpoint's weights, by the ranks that write."""
        sharded, self.model = self.model, self.whole_model()
        try:
            if self.args.should_save:
                super().save_model(*arguments, **named)
        finally:
            self.model = sharded

    def whole_model(self) -> torch.nn.Module:
        """The whole model as it is now; all ranks must call it."""
        return self.bare_model if self._skeleton is None else gathered(self.bare_model, self._skeleton)

    def _load_best_model(self) -> None:
        self._unshard()
        super()._load_best_model()

    def train(self, *arguments: Any, **named: Any) -> Any:
        """Train, and leave the whole model on every rank."""
        result = super().train(*arguments, **named)
        self._unshard()
        return result

    def _unshard(self) -> None:
        self.model = self.model_wrapped = self.whole_model()
        self._skeleton = None


class _NoSync:
    """A context in which the gradients of a sharded model stay with their rank, for all steps but an update's last."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __enter__(self) -> None:
        self.model.set_requires_gradient_sync(False)

    def __exit__(self, *raised: object) -> None:
        self.model.set_requires_gradient_sync(True)
