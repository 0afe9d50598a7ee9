"""How an image comes about on your machine: pins, build plan, engine, size, doctor."""
