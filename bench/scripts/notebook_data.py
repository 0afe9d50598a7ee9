"""Data sets in the notebooks' own format, a small ViT and a small GPT-J; bench/user_scripts.py runs this as a job.

The datasets and transformers of the training image create them; they are written to the job's model folder.
"""

import os
from pathlib import Path

import numpy as np
from datasets import Array3D, ClassLabel, Dataset, Features, Value
from transformers import AutoTokenizer, GPTJConfig, GPTJForCausalLM, ViTConfig, ViTForImageClassification, set_seed

ROWS = {"train": 32, "test": 16}
SIDE = 224


def texts(rows: int) -> Dataset:
    """Tokenized reviews of films, as notebooks 01, 05, 06 and 14 upload them."""
    tokenizer = AutoTokenizer.from_pretrained(os.environ["SM_CHANNEL_MODEL"])
    films = [f"a {'good' if number % 2 else 'bad'} film, the {number}th of its kind" for number in range(rows)]
    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])})
    dataset = Dataset.from_dict({"text": films, "label": [number % 2 for number in range(rows)]}, features=features)
    dataset = dataset.map(
        lambda batch: tokenizer(batch["text"], padding="max_length", truncation=True, max_length=32), batched=True
    )
    dataset = dataset.rename_column("label", "labels")
    dataset.set_format("torch", columns=["input_ids", "attention_mask", "labels"])
    return dataset


def images(rows: int) -> Dataset:
    """Grey squares with the features of notebook 09."""
    values = {"pixel_values": Array3D(dtype="float32", shape=(3, SIDE, SIDE))}
    features = Features({"label": ClassLabel(names=["cat", "dog"]), **values})
    labels = Dataset.from_dict({"label": [number % 2 for number in range(rows)]})

    def grey(batch: dict[str, list[int]]) -> dict[str, list[object]]:
        squares: list[object] = [np.full((3, SIDE, SIDE), label, dtype="float32") for label in batch["label"]]
        return {"pixel_values": squares}

    dataset = labels.map(grey, batched=True, features=features)
    dataset.set_format("torch", columns=["pixel_values", "label"])
    return dataset


def main() -> None:
    """Write the folders text, image, vit and gptj."""
    set_seed(0)
    out = Path(os.environ["SM_MODEL_DIR"])
    for name, rows in ROWS.items():
        texts(rows).save_to_disk(str(out / "text" / name))
        images(rows).save_to_disk(str(out / "image" / name))
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    ViTForImageClassification(ViTConfig(**sizes)).save_pretrained(out / "vit")
    tokenizer = AutoTokenizer.from_pretrained(os.environ["SM_CHANNEL_MODEL"])
    sizes = {"n_embd": 64, "n_layer": 4, "n_head": 4, "rotary_dim": 8, "n_positions": 64}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    GPTJForCausalLM(GPTJConfig(vocab_size=len(tokenizer), **sizes, **no_dropout)).save_pretrained(out / "gptj")
    tokenizer.save_pretrained(out / "gptj")


if __name__ == "__main__":
    main()
