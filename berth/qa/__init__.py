"""Extractive question answering for both images, without torch: only the standard library, numpy and tokenizers.

(files.py also uses pyarrow for Parquet, if it is installed.) Data flows through the modules in this order:

    files.py        JSON, JSON lines or Parquet files → rows, each with its place in the file
    squad.py        rows → Example(id, question, context, answers), checked
    answers.py      parses the answers of a row in all their layouts
    faults.py       collects the errors of data files into one message
    tokenizer.py    pairs of texts → encodings
    scripts.py      finds characters of scripts that write no spaces
    windows.py      examples → windows of tokens that fit the model, with labels for training
    spans.py        the model's start and end logits → spans of the context, best first
    metrics.py      answers and gold answers → exact match and F1, as defined by the official SQuAD scripts
"""
