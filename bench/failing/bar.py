"""Fails under a progress bar, which leaves its line open."""

from tqdm import tqdm

from work import load

for step in tqdm(range(20)):
    load(step)
