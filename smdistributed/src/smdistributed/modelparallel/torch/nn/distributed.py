"""smp.nn's layers of a transformer. Tensor parallelism splits their matrices; with one rank they are ordinary modules.

They compute what the documentation's reference implementations do, except for one thing: with pre_layernorm alone the
input is added to the result too, as in GPT-2, which the documentation says these layers can replace.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch_tensor_parallel.rst.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..tensor.choice import mark_unless_disabled, refuse_alibi

_DEFAULTS: dict[str, Any] = {
    "num_layers": 12, "num_attention_heads": 32, "attention_head_size": 32, "hidden_size": 1024,
    "intermediate_size": 4096, "vocab_size": 30522, "num_positions": 1024, "attention_dropout_prob": 0.1,
    "hidden_dropout_prob": 0.1, "activation": "gelu", "layernorm_epsilon": 1e-5, "num_token_types": 0,
    "causal_mask_size": None, "add_cross_attention": False, "add_lm_head": True, "initializer_range": 0.02,
    "use_normal_initialization": False, "pre_layernorm": False, "post_layernorm": True,
}  # fmt: skip
"""The documented arguments; sizes are those of the whole layer, whatever the number of ranks."""
_WITHOUT_EFFECT = {
    "fused_softmax", "fused_dropout", "fused_bias_gelu", "flash_attention", "attention_in_fp32", "zero_init",
    "fp32_residual_addition", "query_key_layer_scaling", "mask_value", "distribute_embedding",
}  # fmt: skip
"""Arguments that choose AWS's kernels or their rounding."""


class DistributedModule(nn.Module):
    """A layer of smp.nn with its arguments in `options`. TypeError for an unknown argument."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        refuse_alibi(f"smp.nn.{type(self).__name__}", arguments)
        if "hidden_width" in arguments:  # its name in published scripts
            arguments["hidden_size"] = arguments.pop("hidden_width")
        if unknown := arguments.keys() - _DEFAULTS.keys() - _WITHOUT_EFFECT - {"use_alibi"}:
            raise TypeError(f"smp.nn.{type(self).__name__} has no argument {min(unknown)!r}; leave it out.")
        self.options = {name: arguments.get(name, default) for name, default in _DEFAULTS.items()}
        mark_unless_disabled(self)

    def _linear(self, inputs: int, outputs: int) -> nn.Linear:
        linear = nn.Linear(inputs, outputs)
        if self.options["use_normal_initialization"]:
            nn.init.normal_(linear.weight, std=self.options["initializer_range"])
        return linear

    def _norm(self, name: str) -> nn.Module:
        """The normalization of this option, or the identity."""
        if not self.options[name]:
            return nn.Identity()
        return nn.LayerNorm(self.options["hidden_size"], eps=self.options["layernorm_epsilon"])


class DistributedLinear(nn.Linear):
    """nn.Linear, split by its inputs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        mark_unless_disabled(self)


class DistributedEmbedding(nn.Embedding):
    """nn.Embedding, split by its words."""

    def __init__(self, *args: Any, initializer_range: float = 0.02, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        nn.init.normal_(self.weight, std=initializer_range)
        mark_unless_disabled(self)


class DistributedAttentionLayer(DistributedModule):
    """Attention, a linear layer and a dropout, then the input is added and the sum normalized.

    forward takes (hidden states, mask), or with cross_attention (hidden states, states to attend to, mask). The mask is
    added to the scores.
    """

    def __init__(self, cross_attention: bool = False, **arguments: Any) -> None:  # noqa: FBT001, FBT002
        super().__init__(**arguments)
        self.num_attention_heads = self.options["num_attention_heads"]
        self.attention_head_size = self.options["attention_head_size"]
        self.cross_attention = cross_attention
        width, size = self.options["hidden_size"], self.num_attention_heads * self.attention_head_size
        self.query, self.key, self.value = (self._linear(width, size) for _ in range(3))
        self.dense = self._linear(size, width)
        self.dropout2 = nn.Dropout(self.options["hidden_dropout_prob"])
        self.pre_layernorm, self.layernorm = self._norm("pre_layernorm"), self._norm("post_layernorm")

    def _heads(self, value: torch.Tensor) -> torch.Tensor:
        return value.view(*value.shape[:-1], -1, self.attention_head_size).transpose(1, 2)

    def forward(self, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """The new hidden states."""
        hidden, *states, mask = inputs
        normed = self.pre_layernorm(hidden)
        source = states[0] if self.cross_attention else normed
        query, key, value = (
            self._heads(matrix(each))
            for matrix, each in ((self.query, normed), (self.key, source), (self.value, source))
        )
        scores = query @ key.transpose(-1, -2) / math.sqrt(self.attention_head_size)
        if self.options["causal_mask_size"] and not self.cross_attention:
            future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(future, torch.finfo(scores.dtype).min)
        probabilities = F.dropout(
            F.softmax(scores + mask, dim=-1), self.options["attention_dropout_prob"], self.training
        )
        context = (probabilities @ value).transpose(1, 2).flatten(2)
        result: torch.Tensor = self.layernorm(self.dropout2(self.dense(context)) + hidden)
        return result


class DistributedTransformerOutputLayer(DistributedModule):
    """Two linear layers with an activation between them, then the input is added and the sum normalized."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.dense1 = self._linear(self.options["hidden_size"], self.options["intermediate_size"])
        self.dense2 = self._linear(self.options["intermediate_size"], self.options["hidden_size"])
        self.dropout = nn.Dropout(self.options["hidden_dropout_prob"])
        self.pre_layernorm, self.layernorm = self._norm("pre_layernorm"), self._norm("post_layernorm")

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The new hidden states."""
        activation = F.gelu if self.options["activation"] == "gelu" else F.relu
        middle = activation(self.dense1(self.pre_layernorm(hidden)))
        result: torch.Tensor = self.layernorm(self.dropout(self.dense2(middle)) + hidden)
        return result


class DistributedTransformerLayer(DistributedModule):
    """An attention layer, with add_cross_attention another one, and an output layer.

    forward takes and returns (hidden states, mask), or with add_cross_attention (hidden states, states to attend to,
    mask, mask of those states).
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.attention = DistributedAttentionLayer(**arguments)
        if self.options["add_cross_attention"]:
            self.cross_attention = DistributedAttentionLayer(cross_attention=True, **arguments)
        self.output = DistributedTransformerOutputLayer(**arguments)

    def forward(self, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """The inputs with new hidden states."""
        if not self.options["add_cross_attention"]:
            hidden, mask = inputs
            return self.output(self.attention((hidden, mask))), mask
        hidden, states, mask, cross_mask = inputs
        hidden = self.cross_attention((self.attention((hidden, mask)), states, cross_mask))
        return self.output(hidden), states, mask, cross_mask


class DistributedTransformer(DistributedModule):
    """num_layers layers; with pre_layernorm and post_layernorm its input and output are normalized as well."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        layers = [DistributedTransformerLayer(**arguments) for _ in range(self.options["num_layers"])]
        self.seq_layers = nn.Sequential(*layers)
        both = self.options["pre_layernorm"] and self.options["post_layernorm"]
        self.input_layernorm, self.layernorm = (
            self._norm("pre_layernorm") if both else nn.Identity() for _ in range(2)
        )

    def forward(self, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """The inputs with new hidden states."""
        hidden, *rest = inputs
        hidden, *rest = self.seq_layers((self.input_layernorm(hidden), *rest))
        return (self.layernorm(hidden), *rest)


class DistributedTransformerLMHead(DistributedModule):
    """Embeddings, layers and a language model's head, whose weight is that of the words' embedding.

    forward takes (ids, mask, token types, positions, labels), of which all but the ids may be None; in the mask 1 is a
    masked position. It returns hidden states without a head, else logits, with labels (loss, logits).
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        if self.options["add_cross_attention"]:
            raise TypeError(
                "smp.nn.DistributedTransformerLMHead does not support add_cross_attention; use DistributedTransformer."
            )
        width = self.options["hidden_size"]
        self.word_embedding = nn.Embedding(self.options["vocab_size"], width)
        self.position_embedding = nn.Embedding(self.options["num_positions"], width)
        if self.options["num_token_types"]:
            self.token_type_embedding = nn.Embedding(self.options["num_token_types"], width)
        for each in self.children():
            nn.init.normal_(each.weight, std=self.options["initializer_range"])  # type: ignore[arg-type]
        self.transformer = DistributedTransformer(**arguments)
        if self.options["add_lm_head"]:
            self.lm_head = nn.Linear(width, self.options["vocab_size"], bias=False)
            self.lm_head.weight = self.word_embedding.weight

    def forward(self, inputs: tuple[torch.Tensor | None, ...]) -> Any:
        """Hidden states, logits, or loss and logits."""
        ids, mask, token_types, positions, labels = inputs
        assert ids is not None
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        hidden = self.word_embedding(ids) + self.position_embedding(positions)
        hidden = hidden if token_types is None else hidden + self.token_type_embedding(token_types)
        added = hidden.new_zeros(ids.shape[0], 1, 1, ids.shape[1])
        if mask is not None:
            added = added.masked_fill(mask[:, None, None, :].bool(), torch.finfo(hidden.dtype).min)
        hidden = self.transformer((hidden, added))[0]
        if not self.options["add_lm_head"]:
            return hidden
        logits = self.lm_head(hidden)
        if labels is None:
            return logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), logits
