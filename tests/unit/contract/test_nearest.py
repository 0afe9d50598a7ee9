"""Suggests the hyperparameter that a name most likely means."""

import pytest
from transformers import TrainingArguments

from berth.contract.deprecated import DEPRECATED_NAMES
from berth.contract.hyperparameters import LAUNCHER_NAMES
from berth.contract.nearest import SHORT_FORMS, nearest
from berth.train.run_qa.recipe import options

OPTIONS = options(TrainingArguments)
KNOWN = [*OPTIONS, *DEPRECATED_NAMES, *LAUNCHER_NAMES]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("lr", "learning_rate"),
        ("LR", "learning_rate"),
        ("learning_ratee", "learning_rate"),
        ("batch_size", "per_device_train_batch_size"),
        ("batch-size", "per_device_train_batch_size"),
        ("num_epochs", "num_train_epochs"),
        ("max_length", "max_seq_length"),
        ("warmup", "warmup_steps"),
        ("model_id", "model_name_or_path"),
        ("grad_accum", "gradient_accumulation_steps"),
        ("wd", "weight_decay"),
        ("persistent_workers", "dataloader_persistent_workers"),
        ("xyzzy", None),
    ],
)
def test_nearest_by_short_form_words_or_letters(name: str, meant: str | None) -> None:
    assert nearest(name, KNOWN) == meant


def test_short_forms_are_unique_and_lead_to_hyperparameters() -> None:
    assert [name for name in SHORT_FORMS if name not in KNOWN] == []
    forms = [form for several in SHORT_FORMS.values() for form in several]
    assert len(forms) == len(set(forms))
    assert set(forms) & set(KNOWN) == set()


def test_unknown_hyperparameter_is_not_suggested() -> None:
    assert nearest("lr", ["seed"]) is None
