"""A double of smart_open, which the scripts import and do not use."""

from builtins import open as open
