"""A double of flash_attn 1."""
