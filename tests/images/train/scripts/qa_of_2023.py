"""A question answering script of early 2023, with names that transformers 5 and datasets 3 removed.

It reads JSON, uses save_to_disk and transformers' own optimizer, and saves the model as pytorch_model.bin and, in
another folder, as safetensors.
"""

import argparse
import os

from datasets import load_dataset, load_from_disk, load_metric
from transformers import (
    AdamW,
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    get_linear_schedule_with_warmup,
)
from transformers.trainer_utils import EvaluationStrategy, get_last_checkpoint


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name", type=str)
    parser.add_argument("--max_steps", type=int, default=2)
    parser.add_argument("--checkpoints", type=str, default="/opt/ml/checkpoints")
    parser.add_argument("--output_data_dir", type=str, default=os.environ["SM_OUTPUT_DATA_DIR"])
    parser.add_argument("--model_dir", type=str, default=os.environ["SM_MODEL_DIR"])
    parser.add_argument("--training_dir", type=str, default=os.environ["SM_CHANNEL_TRAIN"])
    args, _ = parser.parse_known_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model_name)
    files = {"train": os.path.join(args.training_dir, "rows.json")}
    rows = load_dataset("json", data_files=files, field="data", split="train")

    def features(examples):
        encoded = tokenizer(
            examples["question"], examples["context"], truncation="only_second", max_length=64, padding="max_length"
        )
        encoded["start_positions"] = encoded["end_positions"] = [1] * len(examples["id"])
        return encoded

    rows.map(features, batched=True, remove_columns=rows.column_names).save_to_disk(f"{args.output_data_dir}/rows")
    windows = load_from_disk(f"{args.output_data_dir}/rows")
    metric = load_metric("squad")

    def compute_metrics(prediction):
        starts = prediction.predictions[0].argmax(axis=1)
        pairs = [(row, int(start)) for row, start in zip(rows, starts, strict=True)]
        answers = [{"id": row["id"], "prediction_text": row["context"][:start]} for row, start in pairs]
        golds = [{"id": row["id"], "answers": row["answers"]} for row in rows]
        return metric.compute(predictions=answers, references=golds)

    def trainer_of(steps):
        model = AutoModelForQuestionAnswering.from_pretrained(args.model_name)
        optimizer = AdamW(model.parameters(), lr=1e-4)
        training_args = TrainingArguments(
            output_dir=args.checkpoints,
            max_steps=steps,
            per_device_train_batch_size=2,
            evaluation_strategy=EvaluationStrategy.STEPS,
            eval_steps=2,
            save_steps=2,
            logging_steps=1,
            no_cuda=True,
            disable_tqdm=True,
        )
        return Trainer(
            model=model,
            args=training_args,
            train_dataset=windows,
            eval_dataset=windows,
            tokenizer=tokenizer,
            data_collator=default_data_collator,
            compute_metrics=compute_metrics,
            optimizers=(optimizer, get_linear_schedule_with_warmup(optimizer, 0, steps)),
        )

    trainer_of(args.max_steps).train()
    trainer = trainer_of(2 * args.max_steps)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.checkpoints))
    figures = trainer.evaluate()
    trainer.save_model(args.model_dir)
    trainer.model.save_pretrained(f"{args.model_dir}/safe", safe_serialization=True)
    tokenizer.save_pretrained(f"{args.model_dir}/safe")
    print(f"qa: step {trainer.state.global_step}, {sorted(figures)}", flush=True)


if __name__ == "__main__":
    main()
