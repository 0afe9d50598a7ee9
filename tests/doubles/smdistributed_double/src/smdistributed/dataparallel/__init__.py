"""The double of the data parallel library, SMDDP."""

__version__ = "2.6.0+double"
