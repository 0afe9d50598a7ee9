"""What turns windows into logits.

`engine` says what an engine is; `openvino` and `pytorch` are two; `graph` knows the files that OpenVINO needs next to a
model, and `convert` makes them; `choose` finds a model in a folder and loads it with the engine that fits this host.
"""
