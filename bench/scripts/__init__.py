"""Modules of bench/user_scripts.py and of the programs that measure the model parallel library.

table            the scripts of bench/user_scripts.py, how each is started, and the expected results
data             the data of these scripts; notebook_data creates a part of it in the training image
model_parallel_bert, model_parallel_launch, wire_bytes
                 the ranks' program, the launch and the least bytes, for bench.model_parallel_memory and _overlap
sleeping_layers, control_messages
                 a model that sleeps, and messages that nobody reads yet, for bench.model_parallel_overlap
exits            the jobs of bench.exits
"""
