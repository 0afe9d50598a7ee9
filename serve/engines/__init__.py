"""What turns windows into logits: `engine` says what an engine is, `batches` groups windows, `pytorch` is one."""
