"""What both images know of extractive question answering, without torch: the standard library, numpy, tokenizers only.

Data flows through the files in this order:

    files.py        a JSON, JSON lines or Parquet file, or a folder of them → rows, each with its place in the file
    squad.py        rows → Example(id, question, context, answers), checked
    answers.py      the answers of a row, in every way to write them
    faults.py       what is wrong in the files, all of it in one sentence
    tokenizer.py    pairs of texts → encodings
    scripts.py      which characters are of a script that writes no spaces
    windows.py      examples → windows of tokens that a model can take, with the labels for training
    spans.py        the model's start and end logits → spans of the context, best first
    metrics.py      answers and gold answers → exact match and F1, as the official SQuAD scripts define them
"""
