"""For run_glue.py, by transformers 4.26: a small RoBERTa without dropout, its tokenizer, sentences of three classes.

The job's folder of checkpoints gets model/, train/train.csv and validation/validation.csv.
"""

import csv
from pathlib import Path

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import RobertaConfig, RobertaForSequenceClassification, RobertaTokenizerFast

ROWS = {"train": 64, "validation": 16}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def sentences(rows: int) -> list[tuple[str, str, int]]:
    """Pairs as MNLI lays them out: two sentences and one of three labels."""
    return [
        (
            f"a {'good' if row % 2 else 'bad'} film, number {row} of its kind",
            f"the viewer left it after {row} minutes",
            row % 3,
        )
        for row in range(rows)
    ]


def main(folder: Path) -> None:
    model = folder / "model"
    model.mkdir(parents=True)
    tokenizer = ByteLevelBPETokenizer()
    texts = [f"{first} {second}" for first, second, _ in sentences(ROWS["train"])]
    tokenizer.train_from_iterator(texts, vocab_size=400, special_tokens=SPECIAL)
    tokenizer.save_model(str(model))
    words = RobertaTokenizerFast(str(model / "vocab.json"), str(model / "merges.txt"))
    words.save_pretrained(model)
    torch.manual_seed(0)
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    size = {"hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4, "intermediate_size": 128}
    config = RobertaConfig(vocab_size=len(words), max_position_embeddings=130, num_labels=3, **size, **none)
    RobertaForSequenceClassification(config).save_pretrained(model)
    for name, rows in ROWS.items():
        (folder / name).mkdir()
        with (folder / name / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("sentence1", "sentence2", "label"), *sentences(rows)])


if __name__ == "__main__":
    main(Path("/opt/ml/checkpoints"))
