"""A question answering script in the style of transformers' example, with the same calls."""

from dataclasses import dataclass, field

import evaluate
import numpy as np
from datasets import load_dataset
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)


@dataclass
class DataArguments:
    model_name_or_path: str
    train_file: str
    validation_file: str
    max_seq_length: int = field(default=64, metadata={"help": "Tokens of a window."})


def main() -> None:
    data, training = HfArgumentParser((DataArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(training.seed)
    files = {"train": data.train_file, "validation": data.validation_file}
    rows = load_dataset("json", data_files=files, field="data")
    tokenizer = AutoTokenizer.from_pretrained(data.model_name_or_path)
    model = AutoModelForQuestionAnswering.from_pretrained(data.model_name_or_path)

    def features(examples):
        encoded = tokenizer(
            examples["question"],
            examples["context"],
            truncation="only_second",
            max_length=data.max_seq_length,
            padding="max_length",
        )
        encoded["start_positions"] = encoded["end_positions"] = [1] * len(examples["id"])
        return encoded

    with training.main_process_first(desc="features"):
        windows = rows.map(features, batched=True, remove_columns=rows["train"].column_names)
    metric = evaluate.load("squad")

    def compute_metrics(prediction):
        starts = np.argmax(prediction.predictions[0], axis=1)
        pairs = list(zip(rows["validation"], starts, strict=True))
        answers = [{"id": row["id"], "prediction_text": row["context"][: int(start)]} for row, start in pairs]
        golds = [{"id": row["id"], "answers": row["answers"]} for row, _ in pairs]
        return metric.compute(predictions=answers, references=golds)

    trainer = Trainer(
        model=model,
        args=training,
        train_dataset=windows["train"],
        eval_dataset=windows["validation"],
        processing_class=tokenizer,
        data_collator=default_data_collator,
        compute_metrics=compute_metrics,
    )
    result = trainer.train()
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    figures = trainer.evaluate()
    trainer.log_metrics("eval", figures)
    trainer.save_metrics("eval", figures)
    print(f"qa: rank {training.process_index} of {training.world_size}, {sorted(figures)}", flush=True)


if __name__ == "__main__":
    main()
