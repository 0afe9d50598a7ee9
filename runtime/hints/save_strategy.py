"""What to add where transformers refuses load_best_model_at_end, for a model is judged only where it is evaluated."""

import re

from berth.runtime.hints.program import ProgramContext, RaisedException

_REFUSED = re.compile(
    r"load_best_model_at_end requires the save and eval strategy to match.*"
    r"Evaluation strategy: (?:\w+\.)?(\w+)\W+Save strategy: (?:\w+\.)?(\w+)",
    re.DOTALL,
)


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """`; give TrainingArguments save_strategy="epoch" as well`, for the text of an exception; empty for any other."""
    match = _REFUSED.search(raised.message)
    if match is None or raised.kind != "ValueError":
        return ""
    evaluated, saved = match[1].lower(), match[2].lower()
    if evaluated == "no":
        return f'; have TrainingArguments evaluate as well as save, by the strategy "{saved}" for both'
    return f'; give TrainingArguments save_strategy="{evaluated}" as well'
