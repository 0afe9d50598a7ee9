"""Text classification with a model split over ranks, with SageMaker's model parallel library, version 1.

Reads train.jsonl from the channel `train`, with premise, hypothesis and label in each line, as in MNLI: 0 entailment,
1 neutral, 2 contradiction. Without this channel it makes its own data. Prints the loss of each epoch, averaged over all
replicas, and how many of the first 100 pairs get the right label.
"""

import argparse
import json
import os
import random
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.utils.data import DataLoader, DistributedSampler
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForSequenceClassification

Pair = dict[str, str | int]
Batch = dict[str, torch.Tensor]
LABELS = ["entailment", "neutral", "contradiction"]
NAMES = ["anna", "bruno", "clara", "dario", "emil"]
PLACES = ["attic", "cellar", "garden", "kitchen", "garage"]
HYPOTHESES = ["{name} is in the {place} .", "{name} likes the {place} .", "{name} is not in the {place} ."]


def made_pairs(count: int = 384) -> list[Pair]:
    """Premises of one pattern, each with a hypothesis that is entailed, neutral or contradictory."""
    chance = random.Random(0)
    pairs: list[Pair] = []
    for _ in range(count):
        name, place = chance.choice(NAMES), chance.choice(PLACES)
        label = chance.randrange(3)
        premise = f"{chance.choice(['today ', 'for an hour ', ''])}{name} sits in the {place} ."
        hypothesis = HYPOTHESES[label].format(name=name, place=place)
        pairs.append({"premise": premise, "hypothesis": hypothesis, "label": label})
    return pairs


def read_pairs(folder: str | None) -> list[Pair]:
    """The pairs in the channel's train.jsonl, or made pairs without a channel."""
    if folder is None:
        return made_pairs()
    file = Path(folder, "train.jsonl")
    if not file.is_file():
        raise SystemExit(f"{file} is missing: put it into the channel train, or omit the channel.")
    return [json.loads(line) for line in file.read_text().splitlines()]


def make_tokenizer(pairs: list[Pair]) -> PreTrainedTokenizerFast:
    """A tokenizer with one token per word. It is the same on every rank, because all read the same pairs."""
    splitter = pre_tokenizers.Whitespace()
    texts = [str(each[field]) for each in pairs for field in ("premise", "hypothesis")]
    words = {word for text in texts for word, _ in splitter.pre_tokenize_str(text)}
    vocabulary = {word: number for number, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *sorted(words)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = splitter
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


def encode(pairs: list[Pair], tokenizer: PreTrainedTokenizerFast, device: torch.device) -> Batch:
    """Tokens of premise and hypothesis (batch × length, which differs from batch to batch), and the labels (batch)."""
    premises, hypotheses = ([str(each[field]) for each in pairs] for field in ("premise", "hypothesis"))
    tokens = tokenizer(premises, hypotheses, padding=True, return_tensors="pt")
    labels = torch.tensor([int(each["label"]) for each in pairs])
    batch = {"input_ids": tokens["input_ids"], "attention_mask": tokens["attention_mask"], "labels": labels}
    return {name: each.to(device) for name, each in batch.items()}


def configuration(words: int) -> RobertaConfig:
    """A RoBERTa with four layers. It has no dropout, so the losses do not depend on the number of ranks."""
    return RobertaConfig(
        vocab_size=words,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,  # with RoBERTa's default of 0.02 so small a model hardly learns
        max_position_embeddings=130,
        type_vocab_size=1,
        id2label=dict(enumerate(LABELS)),
        label2id={label: number for number, label in enumerate(LABELS)},
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
    )


@smp.step
def train_step(model: smp.DistributedModel, batch: Batch) -> torch.Tensor:
    """The loss and gradients of one microbatch. The library splits the batch and calls this for each part."""
    loss = model(**batch).loss
    model.backward(loss)
    return loss.detach()


@smp.step
def predict_step(model: smp.DistributedModel, batch: Batch) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits


def right_labels(model: smp.DistributedModel, batch: Batch) -> int:
    """Count the pairs that get the right label. The number of microbatches must divide the size of the batch."""
    model.eval()
    predicted = predict_step(model, batch).concat().argmax(1)
    return int((predicted == batch["labels"]).sum())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch_size", type=int, default=32, help="over all replicas")
    parser.add_argument("--learning_rate", type=float, default=0.01)
    arguments, _ = parser.parse_known_args()  # some launchers also pass --mp_parameters, which smp.init reads itself

    smp.init()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(smp.local_rank())
        device = torch.device("cuda", smp.local_rank())

    pairs = read_pairs(os.environ.get("SM_CHANNEL_TRAIN"))
    tokenizer = make_tokenizer(pairs)
    torch.manual_seed(0)
    model = smp.DistributedModel(RobertaForSequenceClassification(configuration(len(tokenizer))))
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), arguments.learning_rate, momentum=0.9))
    # All ranks of a pipeline get the same batches, because each of them must call each step.
    sampler = DistributedSampler(pairs, smp.dp_size(), smp.dp_rank())
    loader = DataLoader(
        pairs,
        batch_size=arguments.batch_size // smp.dp_size(),
        sampler=sampler,
        drop_last=True,
        collate_fn=lambda chosen: encode(chosen, tokenizer, device),
    )
    if not len(loader):
        raise SystemExit(f"{len(pairs)} pairs are fewer than a batch of {arguments.batch_size}: reduce --batch_size.")
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        model.train()
        total = torch.zeros((), device=device)
        for batch in loader:
            optimizer.zero_grad()
            losses = train_step(model, batch)
            optimizer.step()
            total += losses.reduce_mean() / len(loader)
        replicas = smp.allgather(total.item(), smp.DP_GROUP)
        if smp.rank() == 0:
            print(f"epoch {epoch + 1}: loss {sum(replicas) / len(replicas):.6f}", flush=True)

    first = pairs[: min(len(pairs), 100) // smp.num_microbatches() * smp.num_microbatches()]
    right = right_labels(model, encode(first, tokenizer, device))
    weights = model.state_dict()  # gathers all partitions; every rank must call it
    if smp.rank() == 0:
        print(f"right labels: {right} of {len(first)}", flush=True)
        folder = os.environ.get("SM_MODEL_DIR", "model")
        model.module.save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
