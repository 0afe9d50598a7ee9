"""Trains a model on one answer with two partitions, and saves a full checkpoint of the model parallel library.

The checkpoint has the file name that transformers reads, next to configuration and tokenizer.
"""

import argparse

import smdistributed.modelparallel.torch as smp
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

QUESTION, CONTEXT, ANSWER = "Where is it?", "It is in the house by the sea.", "by the sea"


@smp.step
def train_step(model, tensors):
    loss = model(**tensors).loss
    model.backward(loss)
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="folder of the initial model")
    options, _ = parser.parse_known_args()
    smp.init()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    encoded = tokenizer(QUESTION, CONTEXT, return_tensors="pt")
    first = CONTEXT.index(ANSWER)
    ends = {"start_positions": first, "end_positions": first + len(ANSWER) - 1}
    tensors = {name: torch.tensor([encoded.char_to_token(0, at, 1)]) for name, at in ends.items()}
    torch.manual_seed(0)
    model = smp.DistributedModel(AutoModelForQuestionAnswering.from_pretrained(options.model))
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), 0.01))
    for _ in range(20):
        optimizer.zero_grad()
        loss = train_step(model, dict(encoded) | tensors).reduce_mean()
        optimizer.step()
    smp.save_checkpoint("/opt/ml/model", "pytorch_model.bin", partial=False, model=model, optimizer=optimizer)
    if smp.rank() == 0:
        model.module.config.save_pretrained("/opt/ml/model")
        tokenizer.save_pretrained("/opt/ml/model")
        print(f"taught: {smp.pp_size()} partitions, loss {loss.item():.6f}", flush=True)


if __name__ == "__main__":
    main()
