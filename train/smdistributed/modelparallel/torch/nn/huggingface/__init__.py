"""Functions between state dicts of Hugging Face's models and those of smp.nn."""
