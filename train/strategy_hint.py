"""What to add where transformers refuses load_best_model_at_end, for a model is judged only where it is evaluated."""

import re

_REFUSED = re.compile(
    r"load_best_model_at_end requires the save and eval strategy to match.*"
    r"Evaluation strategy: (?:\w+\.)?(\w+)\W+Save strategy: (?:\w+\.)?(\w+)",
    re.DOTALL,
)


def strategy_hint(message: str) -> str:
    """`; give TrainingArguments save_strategy="epoch" as well`, for the text of an exception; empty for any other."""
    match = _REFUSED.search(message)
    if match is None:
        return ""
    evaluated, saved = match[1].lower(), match[2].lower()
    if evaluated == "no":
        return f'; have TrainingArguments evaluate as well as save, by the strategy "{saved}" for both'
    return f'; give TrainingArguments save_strategy="{evaluated}" as well'
