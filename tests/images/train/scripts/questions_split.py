"""Trains a model on eight questions, split over the job's ranks or in one process, and saves it for `from_pretrained`.

Each step has all questions. Tensor parallel ranks get a share of them each.
"""

import argparse

import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

CONTEXT = "Anna walked from Bern to Basel in May. Her brother Otto stayed in the old mill by the river."
ANSWERS = {
    "Who walked?": "Anna",
    "Where did Anna start?": "Bern",
    "Where did Anna go?": "Basel",
    "When did Anna walk?": "May",
    "Who is her brother?": "Otto",
    "Where did Otto stay?": "in the old mill",
    "Where is the mill?": "by the river",
    "What did Anna do?": "walked from Bern to Basel",
}
STEPS, OUTPUT = 20, "/opt/ml/model"
# With a smaller epsilon Adam turns the rounding errors of small gradients into whole steps.
RATE, EPSILON = 0.003, 1e-3


def make_batch(tokenizer):
    encoded = tokenizer(list(ANSWERS), [CONTEXT] * len(ANSWERS), padding=True, return_tensors="pt")
    starts = [CONTEXT.index(answer) for answer in ANSWERS.values()]
    ends = [start + len(answer) - 1 for start, answer in zip(starts, ANSWERS.values(), strict=True)]
    places = {"start_positions": starts, "end_positions": ends}
    tokens = {
        name: torch.tensor([encoded.char_to_token(row, place, 1) for row, place in enumerate(places[name])])
        for name in places
    }
    return dict(encoded) | tokens


def read_model(folder):
    """Without dropout, because ranks and one process draw other random numbers for attention."""
    torch.manual_seed(0)
    return AutoModelForQuestionAnswering.from_pretrained(
        folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    ).train()


def train_alone(folder, batch):
    model = read_model(folder)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, eps=EPSILON)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
    model.save_pretrained(OUTPUT)
    print(f"trained: one process, loss {loss.item():.6f}", flush=True)


def train_split(folder, batch):
    """The same steps with the model parallel library. The last partition has the last layer."""
    import smdistributed.modelparallel.torch as smp

    @smp.step
    def train_step(model, batch):
        loss = model(**batch).loss
        model.backward(loss)
        return loss

    smp.init()
    rows = len(ANSWERS) // smp.dp_size()
    batch = {name: tensor[rows * smp.dp_rank() : rows * (smp.dp_rank() + 1)] for name, tensor in batch.items()}
    with smp.tensor_parallelism():
        model = read_model(folder)
    smp.set_partition(model.bert.encoder.layer[-1], smp.pp_size() - 1)
    model = smp.DistributedModel(model)
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), RATE, eps=EPSILON))
    for _ in range(STEPS):
        optimizer.zero_grad()
        train_step(model, batch)
        optimizer.step()
    split = sum(model.is_distributed_parameter(parameter) for parameter in model.parameters())
    smp.save_checkpoint(OUTPUT, "pytorch_model.bin", partial=False, model=model, optimizer=optimizer)
    if smp.rank() == 0:
        model.module.config.save_pretrained(OUTPUT)
        print(f"trained: {smp.pp_size()} partitions × {smp.tp_size()} tensor ranks, {split} split", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="folder of the initial model")
    parser.add_argument("--way", choices=["one-process", "split"], required=True)
    options, _ = parser.parse_known_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    train = train_split if options.way == "split" else train_alone
    train(options.model, make_batch(tokenizer))
    tokenizer.save_pretrained(OUTPUT)


if __name__ == "__main__":
    main()
