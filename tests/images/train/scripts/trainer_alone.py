"""A script with Trainer that does not import SageMaker's libraries, whatever its job requests.

It trains four steps of a small BERT without dropout. Each step covers all 32 rows, so the order does not matter. The
last line has the number of ranks in the process group, the steps, their mean loss, and the loss after them.
"""

import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SIZE = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64}
ROWS = 32


def rows():
    draws = torch.Generator().manual_seed(0)
    return [
        {"input_ids": torch.randint(1, 100, (12,), generator=draws), "labels": torch.tensor(row % 2)}
        for row in range(ROWS)
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=ROWS)
    options, _ = parser.parse_known_args()
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=100, **SIZE, **NO_DROPOUT))
    arguments = TrainingArguments(
        output_dir="/tmp/out",
        num_train_epochs=4,
        per_device_train_batch_size=options.batch,
        per_device_eval_batch_size=options.batch,
        logging_steps=1,
        learning_rate=1e-3,
        max_grad_norm=0.1,  # smaller than the norm of the gradients
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows(), eval_dataset=rows())
    # With several ranks Trainer of 5.23 multiplies BERT's loss, which is already a mean, by their number.
    trainer.model_accepts_loss_kwargs = False
    trainer.train()
    mean, steps = trainer.state.log_history[-1]["train_loss"], trainer.state.global_step
    after = trainer.evaluate()["eval_loss"]
    if trainer.is_world_process_zero():
        ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        print(f"trained: ranks {ranks}, steps {steps}, losses {mean} {after}", flush=True)


if __name__ == "__main__":
    main()
