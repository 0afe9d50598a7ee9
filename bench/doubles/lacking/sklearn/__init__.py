"""A double of sklearn, which the scripts import and do not use."""
