"""load_best_model_at_end with strategies that do not match, as versions of transformers put it."""

import pytest

from tests.unit.train.failures.printed import ending_sentence

RAISED = """\
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 7, in <module>
    training_args = TrainingArguments(
  File "/v/lib/python3.11/site-packages/transformers/training_args.py", line 1109, in __post_init__
    raise ValueError(
ValueError: {message}
- Evaluation strategy: {evaluated}
- Save strategy: {saved}
"""
V4 = "--load_best_model_at_end requires the save and eval strategy to match, but found"
V5 = V4.replace(", but", ', except when --save_strategy="best", but')
EPOCH = '; give TrainingArguments save_strategy="epoch" as well'


@pytest.mark.parametrize(
    ("message", "evaluated", "saved", "hint"),
    [
        (V4, "IntervalStrategy.EPOCH", "IntervalStrategy.STEPS", EPOCH),
        (V5, "IntervalStrategy.EPOCH", "SaveStrategy.STEPS", EPOCH),
        (V4, "epoch", "steps", EPOCH),
        (V4, "steps", "no", '; give TrainingArguments save_strategy="steps" as well'),
        (V4, "no", "steps", '; have TrainingArguments evaluate as well as save, by the strategy "steps" for both'),
        ("something else", "epoch", "steps", ""),
    ],
)
def test_what_to_add_is_told(message: str, evaluated: str, saved: str, hint: str) -> None:
    lines = RAISED.format(message=message, evaluated=evaluated, saved=saved).splitlines()
    sentence = ending_sentence("train.py", 1, lines, "/opt/ml/code")
    assert sentence is not None
    assert sentence.endswith(f"(raised at train.py:7){hint}")
