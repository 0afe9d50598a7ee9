"""State dicts of GPT-2 need no translation: a wrapped GPT-2 keeps the layers and names of Hugging Face.

Source: the arguments in aws/amazon-sagemaker-examples, model_parallel/gpt2/train_gpt_simple.py.
"""

from typing import Any


def translate_state_dict_to_hf_gpt2(state_dict: Any, max_seq_len: int | None = None) -> Any:
    """The state dict as it is."""
    return state_dict


def translate_hf_state_dict_to_smdistributed_gpt2(state_dict: Any) -> Any:
    """The state dict as it is."""
    return state_dict
