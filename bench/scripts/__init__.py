"""Parts of bench/user_scripts.py and of the benches of the model parallel library.

table            the scripts of bench/user_scripts.py, how each is started, and what is expected of it
data             the data of these scripts; notebook_data makes a part of it in the training image
model_parallel_bert, model_parallel_launch, wire_bytes
                 what bench.model_parallel_memory and bench.model_parallel_overlap run, start and count
"""
