"""Packages that user scripts import and the training image lacks, for bench/user_scripts.py.

packages/torchvision, linformer, vit_pytorch, torchnet   small versions of the real packages, on random data
packages/matplotlib, h5py, summary_writer                stand-ins: scripts import them and hardly use them
"""
