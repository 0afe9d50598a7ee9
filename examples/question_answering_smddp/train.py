"""Question answering over several ranks with SMDDP version 2, the backend `smddp` of torch.distributed.

Reads train.jsonl from the channel `train`, with question, context, answer and answer_start in each line. Without this
channel it makes its own data. Prints the loss of each epoch, averaged over all ranks, and how many of the first 100
questions get exactly the right answer.
"""

import argparse
import json
import os
import random
from pathlib import Path

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import BertConfig, BertForQuestionAnswering, PreTrainedTokenizerFast

Example = dict[str, str | int]
NAMES = ["anna", "bruno", "clara", "dario", "emil"]
THINGS = ["ball", "book", "key", "lamp", "map"]
PLACES = ["attic", "cellar", "garden", "kitchen", "garage"]
QUESTIONS = ["who carried it ?", "what was carried ?", "where is it now ?"]


def made_examples(count: int = 256) -> list[Example]:
    """Sentences of one pattern, each with a question that one of its words answers."""
    chance = random.Random(0)
    examples: list[Example] = []
    for _ in range(count):
        words = [chance.choice(each) for each in (NAMES, THINGS, PLACES)]
        context = f"{chance.choice(['today', 'yesterday', ''])} {words[0]} carried the {words[1]} to the {words[2]} ."
        kind = chance.randrange(3)
        start = context.index(f" {words[kind]} ") + 1
        examples.append({"question": QUESTIONS[kind], "context": context, "answer": words[kind], "answer_start": start})
    return examples


def read_examples(folder: str | None) -> list[Example]:
    """The examples in the channel's train.jsonl, or made examples without a channel."""
    if folder is None:
        return made_examples()
    file = Path(folder, "train.jsonl")
    if not file.is_file():
        raise SystemExit(f"{file} is missing: put it into the channel train, or omit the channel.")
    return [json.loads(line) for line in file.read_text().splitlines()]


def make_tokenizer(examples: list[Example]) -> PreTrainedTokenizerFast:
    """A tokenizer with one token per word. It is the same on every rank, because all read the same examples."""
    splitter = pre_tokenizers.Whitespace()
    texts = [str(each[field]) for each in examples for field in ("question", "context")]
    words = {word for text in texts for word, _ in splitter.pre_tokenize_str(text)}
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(words)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = splitter
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def encode(examples: list[Example], tokenizer: PreTrainedTokenizerFast) -> dict[str, torch.Tensor]:
    """Tokens of question and context (batch × length), and the first and last token of each answer (batch)."""
    pairs = tokenizer(
        [str(each["question"]) for each in examples],
        [str(each["context"]) for each in examples],
        padding=True,
        return_tensors="pt",
    )
    starts = [int(each["answer_start"]) for each in examples]
    ends = [start + len(str(each["answer"])) - 1 for start, each in zip(starts, examples, strict=True)]
    first = [pairs.char_to_token(row, start, sequence_index=1) for row, start in enumerate(starts)]
    last = [pairs.char_to_token(row, end, sequence_index=1) for row, end in enumerate(ends)]
    wanted = {"start_positions": torch.tensor(first), "end_positions": torch.tensor(last)}
    return {"input_ids": pairs["input_ids"], "attention_mask": pairs["attention_mask"], **wanted}


def configuration(words: int) -> BertConfig:
    """A BERT with two layers. It has no dropout, so the losses do not depend on the number of ranks."""
    return BertConfig(
        vocab_size=words,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.15,  # with BERT's default of 0.02 so small a model hardly learns
        pad_token_id=0,
    )


def exact_matches(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> int:
    """Count the questions of a batch whose predicted answer is exactly right."""
    model.eval()
    with torch.no_grad():
        output = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    right = (output.start_logits.argmax(1) == batch["start_positions"]) & (
        output.end_logits.argmax(1) == batch["end_positions"]
    )
    return int(right.sum())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=32, help="over all ranks")
    parser.add_argument("--learning_rate", type=float, default=0.03)
    arguments = parser.parse_args()

    dist.init_process_group("smddp")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)

    examples = read_examples(os.environ.get("SM_CHANNEL_TRAIN"))
    tokenizer = make_tokenizer(examples)
    torch.manual_seed(0)
    model = DistributedDataParallel(BertForQuestionAnswering(configuration(len(tokenizer))).to(device))
    optimizer = torch.optim.SGD(model.parameters(), arguments.learning_rate, momentum=0.9)
    sampler = DistributedSampler(examples, ranks, rank)
    loader = DataLoader(
        examples,
        batch_size=max(arguments.batch_size // ranks, 1),
        sampler=sampler,
        collate_fn=lambda chosen: {name: each.to(device) for name, each in encode(chosen, tokenizer).items()},
    )
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        model.train()
        total = torch.zeros(1, device=device)
        for batch in loader:
            optimizer.zero_grad()
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader) / ranks
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {total.item():.6f}", flush=True)

    if rank == 0:
        first = {name: each.to(device) for name, each in encode(examples[:100], tokenizer).items()}
        print(f"exact match: {exact_matches(model.module, first)} of {len(examples[:100])}", flush=True)
        folder = os.environ.get("SM_MODEL_DIR", "model")
        model.module.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
