"""Hyperparameters of older notebooks and their replacements under transformers 5.

transformers 5 rejects these names, or accepts them without effect. An older notebook's job must not fail because of
them: each name is mapped to its replacement or ignored, and one log line says which and why. A value is rejected only
if ignoring it would silently change the result (apex, sharded_ddp, model parallelism).
"""

from typing import Any

from berth.contract.hyperparameters import DeprecatedName

Applied = tuple[dict[str, Any], str]


def _dropped(reason: str, *, always: bool = False) -> DeprecatedName:
    """A setting that is ignored, whatever its value."""
    return DeprecatedName(str, lambda value: ({}, f"ignored, {reason}"), always=always)


def _refused(type: Any, reason: str) -> DeprecatedName:
    """A setting that is rejected unless it asks for nothing. `reason`: the end of the error."""

    def apply(value: Any) -> Applied:
        if value:
            raise ValueError(reason)
        return {}, "ignored, it asks for nothing"

    return DeprecatedName(type, apply)


def _switch(new: dict[str, Any], off: dict[str, Any] | None = None) -> DeprecatedName:
    """A boolean that became one value of another setting."""

    def apply(value: Any) -> Applied:
        settings = new if value else (off or {})
        text = " and ".join(f"{name} {content}" for name, content in settings.items())
        return settings, f"taken as {text}" if text else "ignored, it asks for nothing"

    return DeprecatedName(bool, apply)


def _inside(new: str, key: str, type: Any) -> DeprecatedName:
    """A setting that became one key of a settings object."""
    return DeprecatedName(type, lambda value: ({new: {key: value}}, f"taken as {key} of {new}"))


def _warmup_ratio(ratio: float) -> Applied:
    if not 0 <= ratio <= 1:
        raise ValueError(f"{ratio} is not between 0 and 1")
    # A warmup_steps below 1 is a share of all steps; 1 would mean one step.
    share = ratio if ratio < 1 else 1 - 1e-9
    return {"warmup_steps": share}, f"taken as warmup_steps {ratio:g} of all steps"


def _half_backend(value: str) -> Applied:
    if value == "apex":
        raise ValueError("can't be apex, which transformers 5 dropped: leave it out to use torch's own mixed precision")
    return {}, "ignored, mixed precision is torch's own"


DEPRECATED_NAMES: dict[str, DeprecatedName] = {
    # Renamed.
    "evaluation_strategy": DeprecatedName(new="eval_strategy"),
    "no_cuda": DeprecatedName(new="use_cpu"),
    "gradient_checkpointing": DeprecatedName(new="activation_checkpointing", always=True),
    "gradient_checkpointing_kwargs": DeprecatedName(new="activation_checkpointing_kwargs", always=True),
    "per_gpu_train_batch_size": DeprecatedName(new="per_device_train_batch_size"),
    "per_gpu_eval_batch_size": DeprecatedName(new="per_device_eval_batch_size"),
    "train_batch_size": DeprecatedName(new="per_device_train_batch_size"),
    "eval_batch_size": DeprecatedName(new="per_device_eval_batch_size"),
    "epochs": DeprecatedName(new="num_train_epochs"),
    "push_to_hub_model_id": DeprecatedName(new="hub_model_id"),
    "push_to_hub_token": DeprecatedName(new="hub_token"),
    "use_auth_token": DeprecatedName(new="token"),
    "revision": DeprecatedName(new="model_revision"),
    "model_name": DeprecatedName(new="model_name_or_path"),
    "predict_file": DeprecatedName(new="validation_file"),
    "max_val_samples": DeprecatedName(new="max_eval_samples"),
    # Became a value of another setting.
    "group_by_length": _switch(
        {"train_sampling_strategy": "group_by_length"}, off={"train_sampling_strategy": "random"}
    ),
    "adafactor": _switch({"optim": "adafactor"}),
    # Older transformers used warmup_ratio only if warmup_steps was 0.
    "warmup_ratio": DeprecatedName(float, _warmup_ratio, blank=0),
    "fsdp_min_num_params": _inside("fsdp_config", "min_num_params", int),
    "fsdp_transformer_layer_cls_to_wrap": _inside("fsdp_config", "transformer_layer_cls_to_wrap", list[str]),
    "dispatch_batches": _inside("accelerator_config", "dispatch_batches", bool),
    "split_batches": _inside("accelerator_config", "split_batches", bool),
    # Ignored.
    "local_rank": _dropped("the launcher tells each rank its number", always=True),
    "fp16_opt_level": _dropped("mixed precision is torch's own"),
    "half_precision_backend": DeprecatedName(str, _half_backend),
    "fp16_backend": DeprecatedName(str, _half_backend),
    "save_safetensors": _dropped("models are always written as safetensors"),
    "include_inputs_for_metrics": _dropped("exact match and F1 need the text only"),
    "include_tokens_per_second": _dropped("the log reports tokens/s already"),
    "overwrite_cache": _dropped("windows are computed in memory for every job"),
    "preprocessing_num_workers": _dropped("the tokenizer uses all cores already"),
    "use_fast_tokenizer": _dropped("the tokenizer must be a fast one"),
    "push_to_hub_organization": _dropped("put the organisation into hub_model_id"),
    # Rejected if set, because ignoring them would silently change the result.
    "sharded_ddp": _refused(str | bool, "no longer exists: use fsdp instead"),
    "mp_parameters": _refused(
        dict[str, Any] | str,
        "asks for model parallelism, which run_qa does not use: leave it out to train data-parallel",
    ),
}
