"""Names of transformers that scripts use and that some releases do not have: from which release to which, and what to
write instead.

The releases are those whose source was read: 4.26, 4.33, 4.40, 4.41, 4.45, 4.46, 4.49, 4.53, 4.57, 5.0, 5.5, 5.15 and
5.23. Between two of them a name may have come or gone a little earlier.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import Version

from berth.contract.deprecated import DEPRECATED_NAMES

ARGUMENTS, TRAINER, ACCELERATOR, NAMES, TOKENIZER = "TrainingArguments", "Trainer", "Accelerator", "", "Tokenizer"
"""What has the names: keywords of two classes, what can be imported, attributes."""
_UNTIL: Mapping[str, Mapping[str, str]] = {
    ARGUMENTS: {
        "4.26": "xpu_backend",
        "4.33": "sharded_ddp",
        "4.49": "evaluation_strategy dispatch_batches split_batches",
        "4.53": "use_ipex",
        "4.57": "adafactor fp16_backend fp16_opt_level fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap "
        "half_precision_backend include_inputs_for_metrics include_tokens_per_second jit_mode_eval mp_parameters "
        "no_cuda overwrite_output_dir past_index per_gpu_eval_batch_size per_gpu_train_batch_size push_to_hub_model_id "
        "push_to_hub_organization push_to_hub_token ray_scope save_safetensors torchdynamo tpu_metrics_debug "
        "tpu_num_cores use_legacy_prediction_loop use_mps_device",
        "5.0": "group_by_length",
        "5.5": "logging_dir warmup_ratio",
    },
    TRAINER: {"4.57": "tokenizer"},
    NAMES: {
        "4.26": "generation_utils top_k_top_p_filtering",
        "4.41": "deepspeed Conversation ConversationalPipeline LogitsWarper PyTorchBenchmark PyTorchBenchmarkArguments",
        "4.49": "AdamW BeamSearchScorer is_torch_tpu_available",
        "4.57": "AutoModelForVision2Seq AutoModelWithLMHead LineByLineTextDataset TextDataset ModelCard "
        "SummarizationPipeline Text2TextGenerationPipeline TranslationPipeline ImageToTextPipeline TRANSFORMERS_CACHE "
        "SpecialTokensMixin is_safetensors_available PushToHubCallback create_optimizer tokenization_utils onnx",
        "5.0": "QuestionAnsweringPipeline VisualQuestionAnsweringPipeline",
        "5.15": "DataCollatorForWholeWordMask DataCollatorForSOP GlueDataset GlueDataTrainingArguments InputExample "
        "InputFeatures SquadDataset SquadDataTrainingArguments SquadExample SquadFeatures glue_compute_metrics "
        "glue_convert_examples_to_features glue_output_modes glue_processors squad_convert_examples_to_features",
    },
    TOKENIZER: {"4.57": "encode_plus batch_encode_plus as_target_tokenizer"},
}
"""Owner → the last release that was read and has them → names."""
_SINCE: Mapping[str, Mapping[str, str]] = {
    ARGUMENTS: {
        "4.33": "ddp_backend ddp_broadcast_buffers dispatch_batches fsdp_config hub_always_push save_safetensors "
        "use_cpu",
        "4.40": "accelerator_config dataloader_persistent_workers dataloader_prefetch_factor "
        "gradient_checkpointing_kwargs include_num_input_tokens_seen include_tokens_per_second lr_scheduler_kwargs "
        "neftune_noise_alpha optim_target_modules save_only_model split_batches",
        "4.41": "batch_eval_metrics eval_strategy restore_callback_states_from_checkpoint",
        "4.45": "eval_on_start eval_use_gather_object torch_empty_cache_steps use_liger_kernel",
        "4.46": "average_tokens_across_devices include_for_metrics",
        "4.53": "hub_revision liger_kernel_config",
        "4.57": "parallelism_config project trackio_space_id",
        "5.5": "train_sampling_strategy",
        "5.23": "activation_checkpointing activation_checkpointing_kwargs",
    },
    TRAINER: {"4.46": "processing_class compute_loss_func", "4.49": "optimizer_cls_and_kwargs"},
    NAMES: {"4.57": "AutoModelForImageTextToText", "4.40": "is_torch_xla_available"},
}
"""Owner → the first release that was read and has them → names."""
_NEW_KEYWORDS = {
    "fsdp_min_num_params": "use fsdp_config",
    "fsdp_transformer_layer_cls_to_wrap": "use fsdp_config",
    "include_inputs_for_metrics": 'use include_for_metrics=["inputs"]',
    "logging_dir": "set the variable TENSORBOARD_LOGGING_DIR",
    "mp_parameters": "leave it out and set BERTH_SMDISTRIBUTED to open",
    "overwrite_output_dir": "leave it out",
    "sharded_ddp": "use fsdp",
    "warmup_ratio": "use warmup_steps, which below 1 is a share of all steps",
}
"""Keyword of TrainingArguments → what to do, where berth.contract.deprecated, which is run_qa's, does not say it."""
_OTHERS = {
    (ACCELERATOR, "dispatch_batches"): "use dataloader_config=DataLoaderConfiguration(dispatch_batches=…)",
    (ACCELERATOR, "even_batches"): "use dataloader_config=DataLoaderConfiguration(even_batches=…)",
    (ACCELERATOR, "split_batches"): "use dataloader_config=DataLoaderConfiguration(split_batches=…)",
    (ACCELERATOR, "logging_dir"): "rename it to project_dir",
    (TRAINER, "tokenizer"): "rename it to processing_class",
    (TRAINER, "processing_class"): "rename it to tokenizer",
    (TOKENIZER, "as_target_tokenizer"): "give the tokenizer text_target",
    (TOKENIZER, "batch_encode_plus"): "call the tokenizer itself",
    (TOKENIZER, "encode_plus"): "call the tokenizer itself",
    (NAMES, "AdamW"): "use torch.optim.AdamW",
    (NAMES, "AutoModelForVision2Seq"): "rename it to AutoModelForImageTextToText",
    (NAMES, "AutoModelForImageTextToText"): "rename it to AutoModelForVision2Seq",
    (NAMES, "AutoModelWithLMHead"): "use AutoModelForCausalLM, AutoModelForMaskedLM or AutoModelForSeq2SeqLM",
    (NAMES, "deepspeed"): "use transformers.integrations.deepspeed",
    (NAMES, "generation_utils"): "use transformers.generation",
    (NAMES, "is_torch_tpu_available"): "rename it to is_torch_xla_available",
    (NAMES, "list_metrics"): "use evaluate.list_evaluation_modules",
    (NAMES, "load_metric"): "use evaluate.load",
    (NAMES, "set_caching_enabled"): "use enable_caching or disable_caching",
}
"""Owner and name → what to do; also of datasets and accelerate."""
_FEATURE_EXTRACTOR = re.compile(r"([A-Z]\w+)FeatureExtractor")
_OF_VISION = (
    "Beit CLIP ChineseCLIP ConditionalDetr ConvNext DPT DeformableDetr DeiT Detr Donut Flava GLPN ImageGPT LayoutLMv2 "
    "LayoutLMv3 Levit MaskFormer MobileNetV1 MobileNetV2 MobileViT OwlViT Perceiver PoolFormer Segformer ViT VideoMAE "
    "Vilt Yolos"
)


@dataclass(frozen=True, slots=True)
class ApiName:
    """One name: what has it, and the first and last release that have it, as far as releases that were read lack it."""

    owner: str
    name: str
    since: Version | None = None
    until: Version | None = None

    def is_in(self, version: Version) -> bool:
        """Whether that release of transformers has it."""
        release = Version(".".join(map(str, version.release[:2])))
        return (self.since is None or self.since <= release) and (self.until is None or release <= self.until)


def known_name(owner: str, name: str) -> ApiName | None:
    """A name of the table; None for any other."""
    since = _release(_SINCE, owner, name)
    until = _release(_UNTIL, owner, name)
    if owner == NAMES and (match := _FEATURE_EXTRACTOR.fullmatch(name)) and match[1] in _OF_VISION.split():
        until = Version("4.57")
    return ApiName(owner, name, since, until) if since or until else None


def _release(table: Mapping[str, Mapping[str, str]], owner: str, name: str) -> Version | None:
    rows = table.get(owner, {})
    return next((Version(release) for release, names in rows.items() if name in names.split()), None)


def replacement(owner: str, name: str, version: Version) -> str:
    """What to write instead in that release: `rename it to eval_strategy`, `leave it out`, `use …`; "" for unknown."""
    if owner == NAMES and (match := _FEATURE_EXTRACTOR.fullmatch(name)):
        return f"rename it to {match[1]}ImageProcessor"
    if found := _OTHERS.get((owner, name)):
        return found
    if owner != ARGUMENTS:
        return ""
    row = known_name(owner, name)
    if row and row.since and version < row.since:
        return _earlier_name(name, version)
    return _NEW_KEYWORDS.get(name) or _of_run_qa(name)


def _earlier_name(name: str, version: Version) -> str:
    for old, change in DEPRECATED_NAMES.items():
        row = known_name(ARGUMENTS, old)
        if change.new == name and row is not None and row.is_in(version):
            return f"rename it to {old}"
    return ""


def _of_run_qa(name: str) -> str:
    """What run_qa does with a hyperparameter of that name, as advice."""
    known = DEPRECATED_NAMES.get(name)
    if known is None:
        return ""
    if known.new:
        return f"rename it to {known.new}"
    try:
        new = known.apply(True if known.type is bool else "")[0] if known.apply else {}
    except ValueError:
        return ""
    chosen = " and ".join(f'{each}="{content}"' for each, content in new.items())
    return f"use {chosen}" if chosen else "leave it out"
