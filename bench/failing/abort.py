"""Calls abort(), as a C++ library does."""

import os

os.abort()
