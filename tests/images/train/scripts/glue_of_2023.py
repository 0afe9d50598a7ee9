"""A classification script of early 2023, with names that transformers 5 and datasets 3 removed.

It has SageMaker's arguments, reads CSV, trains one epoch, and trains another one from its checkpoint.
"""

import argparse
import hashlib
import os

import numpy as np
from datasets import load_dataset, load_metric
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name", type=str)
    parser.add_argument("--train_batch_size", type=int, default=2)
    parser.add_argument("--fp16", type=bool, default=True)
    parser.add_argument("--checkpoints", type=str, default="/opt/ml/checkpoints")
    parser.add_argument("--model_dir", type=str, default=os.environ["SM_MODEL_DIR"])
    parser.add_argument("--training_dir", type=str, default=os.environ["SM_CHANNEL_TRAIN"])
    args, _ = parser.parse_known_args()

    rows = load_dataset("csv", data_files={"train": os.path.join(args.training_dir, "rows.csv")})["train"]
    tokenizer = AutoTokenizer.from_pretrained(args.model_name)
    rows = rows.map(lambda batch: tokenizer(batch["sentence1"], batch["sentence2"], truncation=True, max_length=32))
    metric = load_metric("glue", "mrpc")

    def compute_metrics(prediction):
        return metric.compute(predictions=np.argmax(prediction.predictions, axis=1), references=prediction.label_ids)

    def trainer_of(epochs):
        training_args = TrainingArguments(
            output_dir=args.checkpoints,
            overwrite_output_dir=True,
            num_train_epochs=epochs,
            per_device_train_batch_size=args.train_batch_size,
            per_device_eval_batch_size=args.train_batch_size,
            fp16=args.fp16,
            evaluation_strategy="epoch",
            save_strategy="epoch",
            logging_dir=f"{args.checkpoints}/logs",
            logging_steps=1,
            load_best_model_at_end=True,
            metric_for_best_model="f1",
            disable_tqdm=True,
        )
        return Trainer(
            model=AutoModelForSequenceClassification.from_pretrained(args.model_name, num_labels=2),
            args=training_args,
            train_dataset=rows,
            eval_dataset=rows,
            tokenizer=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=compute_metrics,
        )

    trainer_of(1).train()
    trainer = trainer_of(2)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.checkpoints))
    figures = trainer.evaluate()
    trainer.save_model(args.model_dir)
    weights = b"".join(tensor.numpy().tobytes() for tensor in trainer.model.state_dict().values())
    print(
        f"glue: rank {trainer.args.process_index} of {trainer.args.world_size}, step {trainer.state.global_step},",
        f"{sorted(figures)}, weights {hashlib.sha256(weights).hexdigest()}",
        flush=True,
    )


if __name__ == "__main__":
    main()
