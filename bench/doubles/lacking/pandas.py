"""A double of pandas, which the scripts import and do not use."""
