"""A double of torchvision: its data sets contain random numbers, its transforms change nothing."""

from . import datasets as datasets
from . import transforms as transforms

__version__ = "0.28.0+double"
