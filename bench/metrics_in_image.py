"""For bench/metrics.py, in the training image: each metric of ours and its original on the same rows, a JSON line each.

The rows are made with a fixed seed, and have what decides between ways to count: articles, punctuation, other scripts,
texts that are nothing once normalised, several gold answers, none, equal probabilities, classes that never come.
"""

import json
import random
from collections.abc import Callable
from typing import Any

import evaluate

SETS, ROWS, TOLERANCE = 30, 200, 1e-9
WORDS = ["the", "a", "An", "Eiffel", "tower,", "Tower.", "—", "Straße", "naïve", "東京", "the-end", "U.S.", "", "!"]
THRESHOLDS = (1.0, 0.5, 0.0)
CLASSES = {"sst2": 2, "mnli": 3, "mnli_mismatched": 3, "mnli_matched": 3, "qnli": 2, "rte": 2, "wnli": 2, "hans": 2}
CLASSES |= {"cola": 2, "mrpc": 2, "qqp": 2}

Given = dict[str, Any]


def text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))


def questions(chance: random.Random, *, version_2: bool) -> Given:
    """Predictions, many of them right or nearly, and references; of v2.0 some without an answer."""
    predictions, references = [], []
    for number in range(ROWS):
        golds = [text(chance, chance.randint(1, 4)) for _ in range(chance.randint(0 if version_2 else 1, 3))]
        near = [*golds, *(gold.upper() for gold in golds), text(chance, 2), "", "the"]
        prediction: Given = {"id": str(number), "prediction_text": chance.choice(near)}
        if version_2:
            prediction["no_answer_probability"] = round(chance.random(), 1)
        predictions.append(prediction)
        answers = {"text": golds, "answer_start": [0] * len(golds)}
        references.append({"id": str(number), "answers": answers})
    chance.shuffle(predictions)
    more = {"no_answer_threshold": chance.choice(THRESHOLDS)} if version_2 else {}
    return {"predictions": predictions, "references": references, **more}


def labels(chance: random.Random, classes: int) -> Given:
    references = [chance.randrange(classes) for _ in range(ROWS)]
    predictions = [label if chance.random() < 0.7 else chance.randrange(classes) for label in references]
    return {"predictions": predictions, "references": references}


def scores(chance: random.Random) -> Given:
    references = [round(chance.uniform(0, 5), 1) for _ in range(ROWS)]
    return {"predictions": [score + chance.gauss(0, 1) for score in references], "references": references}


def accuracies(chance: random.Random) -> Given:
    more = chance.choice([{}, {"normalize": False}, {"sample_weight": [chance.random() for _ in range(ROWS)]}])
    return labels(chance, 4) | more


def several_labels(chance: random.Random) -> Given:
    """Rows of three labels each, every one of them there or not."""
    references = [[chance.randrange(2) for _ in range(3)] for _ in range(ROWS)]
    predictions = [[label ^ (chance.random() < 0.1) for label in row] for row in references]
    return {"predictions": predictions, "references": references}


def compare(name: str, task: str | None, make: Callable[[random.Random], Given]) -> dict[str, Any]:
    """Both on all sets of rows: the keys, and the largest difference of a figure."""
    chance = random.Random(f"{name} {task}")
    ours, theirs = evaluate.load(name, task), evaluate.load(f"/originals/{name}", task)
    assert type(ours).__module__ == "berth.train.metrics.modules", "the image's own metric was not asked"
    assert type(theirs).__module__ != type(ours).__module__
    keys: dict[str, None] = {}
    largest, figures, same_keys = 0.0, 0, True
    for _ in range(SETS):
        given = make(chance)
        own, original = ours.compute(**given), theirs.compute(**given)
        keys |= dict.fromkeys(original)
        same_keys &= list(own) == list(original)
        figures += len(original)
        largest = max([largest, *(abs(own[key] - original[key]) for key in original if key in own)])
    return {
        "metric": " ".join(word for word in (name, task) if word),
        **{"sets": SETS, "rows": SETS * ROWS, "keys": list(keys), "figures": figures, "difference": largest},
        "same": same_keys and largest <= TOLERANCE,
    }


def main() -> None:
    evaluate.disable_progress_bar()
    cases: list[tuple[str, str | None, Callable[[random.Random], Given]]] = [
        ("squad", None, lambda chance: questions(chance, version_2=False)),
        ("squad_v2", None, lambda chance: questions(chance, version_2=True)),
        *(("glue", task, lambda chance, n=classes: labels(chance, n)) for task, classes in CLASSES.items()),
        ("glue", "stsb", scores),
        ("accuracy", None, accuracies),
        ("accuracy", "multilabel", several_labels),
    ]
    for name, task, make in cases:
        print(json.dumps(compare(name, task, make)))


if __name__ == "__main__":
    main()
