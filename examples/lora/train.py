"""Fine-tune a text classifier with LoRA (peft) and transformers' Trainer, and save the merged model.

Needs peft, which an image of your own profile has (README.md). Reads a pretrained model from the channel `model`, and
makes 400 film reviews. Prints how many of the first 100 get the right label.
"""

import argparse
import os
import random

from datasets import Dataset
from peft import LoraConfig, TaskType, get_peft_model
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

VERDICTS = [["dull", "clumsy", "far too long", "a mess"], ["great", "funny", "moving", "a joy"]]


def made_reviews(count: int = 400) -> Dataset:
    """Short reviews, 0 for bad and 1 for good, the same in every process."""
    chance = random.Random(0)
    labels = [chance.randrange(2) for _ in range(count)]
    films = [chance.choice(["film", "story", "cast", "music", "ending"]) for _ in labels]
    texts = [f"The {film} was {chance.choice(VERDICTS[label])}." for film, label in zip(films, labels, strict=True)]
    return Dataset.from_dict({"text": texts, "labels": labels})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--rank", type=int, default=8, help="the rank of the matrices that LoRA trains")
    arguments = parser.parse_args()
    pretrained, model_dir = os.environ["SM_CHANNEL_MODEL"], os.environ["SM_MODEL_DIR"]

    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    data = made_reviews().map(lambda rows: tokenizer(rows["text"]), batched=True, remove_columns=["text"])
    model = get_peft_model(
        AutoModelForSequenceClassification.from_pretrained(pretrained, num_labels=2),
        LoraConfig(task_type=TaskType.SEQ_CLS, r=arguments.rank, target_modules=["query", "value"]),
    )
    model.print_trainable_parameters()
    settings = TrainingArguments(
        "/tmp/checkpoints",
        num_train_epochs=arguments.epochs,
        learning_rate=2e-3,
        label_names=["labels"],  # Trainer cannot see them behind the adapter
        per_device_train_batch_size=16,
        save_strategy="no",
        report_to=[],
        seed=1,
    )
    trainer = Trainer(model, settings, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer))
    trainer.train()

    output = trainer.predict(data.select(range(100)))  # on all ranks; the first one writes
    if trainer.is_world_process_zero():
        right = int((output.predictions.argmax(-1) == output.label_ids).sum())
        print(f"right labels: {right} of 100")
        model.merge_and_unload().save_pretrained(model_dir)  # any inference image serves a merged model
        tokenizer.save_pretrained(model_dir)


if __name__ == "__main__":
    main()
