"""Fails while a progress bar has an unfinished line."""

from tqdm import tqdm

from work import load

for step in tqdm(range(20)):
    load(step)
