"""Packages that user scripts import and the training image lacks, for bench/user_scripts.py.

packages/torchvision, linformer, vit_pytorch, torchnet   small versions of the real packages, on random data
packages/matplotlib, h5py, summary_writer                almost empty: scripts import them but hardly use them
"""
