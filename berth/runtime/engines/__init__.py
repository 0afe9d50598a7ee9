"""What turns windows into logits.

`engine` says what an engine is; `openvino` and `pytorch` are two; `graph` knows the files that OpenVINO needs next to a
model, `convert` makes them, `conversion` has that done once for all workers, `quantize` adds the int8 graph, and
`quantization` says what that may lose; `choose` finds a model in a folder (`model_folder`) and loads it with the engine
that fits this host. `batches` says which windows go through it together. `model_check` looks at a model and its
tokenizer before anything is asked of them, here and in a training job.
"""
