"""Functions that translate state dicts between Hugging Face's models and smp.nn. Published scripts import gpt2."""
