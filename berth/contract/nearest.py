"""Suggests the hyperparameter that a name most likely means: by common short forms, by words or by letters."""

import difflib
from collections.abc import Collection, Iterable

SHORT_FORMS = {
    "learning_rate": ("lr", "initial_lr", "base_lr", "eta"),
    "lr_scheduler_type": ("scheduler", "lr_scheduler", "lr_schedule", "schedule", "scheduler_type"),
    "warmup_steps": ("warmup", "num_warmup_steps", "warmup_proportion", "n_warmup"),
    "weight_decay": ("wd", "decay", "l2"),
    "max_grad_norm": ("clip", "grad_clip", "gradient_clipping", "clip_grad_norm", "gradient_clip_val"),
    "label_smoothing_factor": ("label_smoothing", "smoothing"),
    "optim": ("optimizer", "opt"),
    "adam_beta1": ("beta1",),
    "adam_beta2": ("beta2",),
    "adam_epsilon": ("eps", "epsilon", "adam_eps"),
    "num_train_epochs": ("epoch", "n_epochs", "num_epochs", "nb_epochs", "max_epochs", "train_epochs"),
    "max_steps": ("steps", "num_steps", "train_steps", "num_train_steps", "total_steps", "iterations", "max_iter"),
    "per_device_train_batch_size": ("batch_size", "batch", "bs", "bsz", "train_bs", "train_batch", "minibatch_size"),
    "per_device_eval_batch_size": ("eval_bs", "eval_batch", "test_batch_size", "val_batch_size", "valid_batch_size"),
    "gradient_accumulation_steps": ("grad_accum", "grad_acc", "accumulation_steps", "accumulate_grad_batches"),
    "max_seq_length": ("max_length", "max_len", "maxlen", "seq_len", "seq_length", "sequence_length", "max_seq_len"),
    "doc_stride": ("stride", "overlap", "document_stride"),
    "max_answer_length": ("max_answer_len", "answer_length"),
    "n_best_size": ("n_best", "nbest", "top_k"),
    "version_2_with_negative": ("squad_v2", "version_2", "squad2", "with_negative", "allow_no_answer"),
    "null_score_diff_threshold": ("null_threshold", "no_answer_threshold"),
    "model_name_or_path": (
        "model",
        "model_id",
        "model_path",
        "model_dir",
        "pretrained_model",
        "base_model",
        "checkpoint",
    ),
    "tokenizer_name": ("tokenizer", "tokenizer_path", "tokenizer_name_or_path"),
    "dataset_name": ("dataset", "dataset_id"),
    "train_file": ("train_data", "train_path", "training_file", "train_dataset"),
    "validation_file": ("eval_file", "dev_file", "val_file", "valid_file", "eval_data", "validation_data"),
    "test_file": ("test_data", "test_path"),
    "max_train_samples": ("max_samples", "num_samples", "train_samples", "limit"),
    "hidden_dropout_prob": ("dropout", "hidden_dropout", "dropout_prob"),
    "seed": ("random_seed", "random_state", "rng_seed"),
    "fp16": ("mixed_precision", "amp", "half", "use_amp", "precision"),
    "logging_steps": ("log_every", "log_interval", "log_steps", "logging_interval", "print_every"),
    "eval_steps": ("eval_every", "eval_interval", "validation_steps"),
    "eval_strategy": ("eval", "evaluation", "evaluate"),
    "save_steps": ("save_every", "save_interval", "checkpoint_steps"),
    "save_total_limit": ("keep_checkpoints", "max_checkpoints", "num_checkpoints"),
    "output_dir": ("output", "out_dir", "save_dir", "checkpoint_dir", "checkpoints"),
    "dataloader_num_workers": ("num_workers", "workers", "n_workers"),
    "resume_from_checkpoint": ("resume", "resume_from"),
    "processes_per_host": ("nproc_per_node", "num_processes", "nproc", "world_size", "num_gpus"),
}
"""Hyperparameter of run_qa → its names in other programs and libraries."""
_MEANT = {short: name for name, forms in SHORT_FORMS.items() for short in forms}


def close_match(name: str, known: Iterable[str], likeness: float = 0.8) -> str:
    """The known name most similar to `name`; empty if none reaches `likeness` (difflib's ratio, 0 to 1)."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)), "")


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that `name` most likely means; None if none is similar."""
    plain = name.replace("-", "_").lower()
    if (meant := _MEANT.get(plain)) in known:
        return meant
    if found := close_match(plain, known):
        return found
    words = set(plain.split("_"))
    with_words = [option for option in known if words <= set(option.split("_"))]
    if with_words:
        return min(with_words, key=lambda option: (len(option), option))
    return close_match(plain, known, 0.5) or None
