"""The version that a script may read."""

__version__ = "1.15.0+one.process"
