"""Functions between state dicts of Hugging Face's models and those of smp.nn: of gpt2, which scripts import."""
