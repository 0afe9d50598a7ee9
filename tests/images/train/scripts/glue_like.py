"""A classification script in the style of transformers' example, with the same calls."""

from dataclasses import dataclass

import evaluate
import numpy as np
from datasets import load_dataset
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class DataArguments:
    model_name_or_path: str
    train_file: str
    validation_file: str


def main() -> None:
    data, training = HfArgumentParser((DataArguments, TrainingArguments)).parse_args_into_dataclasses()
    rows = load_dataset("csv", data_files={"train": data.train_file, "validation": data.validation_file})
    labels = sorted(rows["train"].unique("label"))
    config = AutoConfig.from_pretrained(data.model_name_or_path, num_labels=len(labels))
    tokenizer = AutoTokenizer.from_pretrained(data.model_name_or_path)
    model = AutoModelForSequenceClassification.from_pretrained(data.model_name_or_path, config=config)

    def features(examples):
        return tokenizer(examples["sentence1"], examples["sentence2"], truncation=True, max_length=32)

    with training.main_process_first(desc="features"):
        rows = rows.map(features, batched=True)
    metric = evaluate.load("accuracy")

    def compute_metrics(prediction: EvalPrediction):
        return metric.compute(predictions=np.argmax(prediction.predictions, axis=1), references=prediction.label_ids)

    trainer = Trainer(
        model=model,
        args=training,
        train_dataset=rows["train"],
        eval_dataset=rows["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=compute_metrics,
    )
    result = trainer.train()
    trainer.save_metrics("train", result.metrics)
    figures = trainer.evaluate()
    trainer.save_metrics("eval", figures)
    print(f"glue: rank {training.process_index} of {training.world_size}, {sorted(figures)}", flush=True)


if __name__ == "__main__":
    main()
