"""A double of PIL, which the scripts import and do not use."""
