"""Packages that user scripts import and the training image lacks, for bench/user_scripts.py.

packages/torchvision, linformer, vit_pytorch, torchnet   small versions of the real packages, on random data
packages/einops, flash_attn                              the one function of theirs that scripts call
packages/matplotlib, h5py, smart_open, summary_writer    almost empty: scripts import them but hardly use them
"""
