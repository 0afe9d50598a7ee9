"""What both images run on, beside qa/: a subprocess with a limit, and `gpu`, which judges driver and GPUs."""
