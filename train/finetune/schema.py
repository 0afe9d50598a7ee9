"""Prints the hyperparameters that run_qa knows with the installed transformers, as one line of JSON:
`python -P -m berth.train.finetune.schema`.

The machine that starts the container reads it with berth.contract.schema.
"""

from transformers import TrainingArguments

from berth.contract.schema import write_schema
from berth.train.finetune.recipe import options

if __name__ == "__main__":
    print(write_schema(options(TrainingArguments)))
