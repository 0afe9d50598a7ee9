"""A double of matplotlib, which the scripts import and do not use."""
