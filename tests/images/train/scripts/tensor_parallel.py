"""Trains small models on two tensor parallel ranks, and compares each with one process.

The other modules are those of smdistributed/tests; the layers are those of the image's version of transformers.
"""

import logging

import pipeline_cases
import smdistributed.modelparallel.torch as smp
import torch
import transformers

CONFIG = {"tensor_parallel_degree": 2, "microbatches": 2, "ddp": True}
NEWER = {"llama": "LlamaConfig", "falcon": "FalconConfig"}
"""Models that older versions of transformers lack, and a class of each."""


def main():
    logging.disable(logging.WARNING)  # transformers warns about the small vocabularies
    torch.set_num_threads(1)
    newer = [kind for kind, name in NEWER.items() if hasattr(transformers, name)]
    for kind in ("bert-3", "gpt2", "vit", "gptj-3", "neox", "bloom-3", "t5", *newer):
        case = pipeline_cases.equality(kind, CONFIG, steps=3)
        if smp.rank() == 0:
            print(f"tensor: {kind} of transformers {transformers.__version__}, errors {case['bad'] or 'none'}, "
                  f"{case['distributed']} split", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
