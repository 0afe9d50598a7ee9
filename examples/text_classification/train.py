"""Fine-tune a text classifier with transformers' Trainer, on one process or on many ranks.

Reads a pretrained model from the channel `model`. Reads train.csv with the columns `text` and `label` from the channel
`train`; without this channel it makes 400 film reviews. Prints how many of the first 100 texts get the right label, and
saves the model together with the handler that serves it, code/inference.py.
"""

import argparse
import os
import random
import shutil
from pathlib import Path

from datasets import Dataset, load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

FILMS = ["film", "story", "cast", "music", "ending", "first half"]
VERDICTS = {"negative": ["dull", "clumsy", "far too long", "a mess"], "positive": ["great", "funny", "moving", "a joy"]}


def made_reviews(count: int = 400) -> Dataset:
    """Short reviews with their labels, the same in every process."""
    chance = random.Random(0)
    labels = [chance.choice(list(VERDICTS)) for _ in range(count)]
    texts = [f"The {chance.choice(FILMS)} was {chance.choice(VERDICTS[label])}." for label in labels]
    return Dataset.from_dict({"text": texts, "label": labels})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--batch_size", type=int, default=16)
    arguments = parser.parse_args()
    pretrained, model_dir = os.environ["SM_CHANNEL_MODEL"], os.environ["SM_MODEL_DIR"]

    channel = os.environ.get("SM_CHANNEL_TRAIN")
    texts = load_dataset("csv", data_files=f"{channel}/train.csv", split="train") if channel else made_reviews()
    names = sorted(set(texts["label"]))
    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    data = texts.map(
        lambda rows: {
            **tokenizer(rows["text"], truncation=True, max_length=128),
            "labels": [names.index(label) for label in rows["label"]],
        },
        batched=True,
        remove_columns=["text", "label"],
    )
    model = AutoModelForSequenceClassification.from_pretrained(
        pretrained,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )
    trainer = Trainer(
        model,
        TrainingArguments(
            "/tmp/checkpoints",
            num_train_epochs=arguments.epochs,
            learning_rate=arguments.learning_rate,
            per_device_train_batch_size=arguments.batch_size,
            logging_steps=25,
            save_strategy="no",
            report_to=[],
            seed=1,
        ),
        train_dataset=data,
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()

    # All ranks predict; the first one writes.
    output = trainer.predict(data.select(range(100)))
    if trainer.is_world_process_zero():
        right = int((output.predictions.argmax(-1) == output.label_ids).sum())
        print(f"right labels: {right} of 100")
        shutil.copytree(Path(__file__).with_name("code"), Path(model_dir, "code"), dirs_exist_ok=True)
    trainer.save_model(model_dir)


if __name__ == "__main__":
    main()
