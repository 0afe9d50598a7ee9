"""Engines: they load a model and turn windows into logits.

engine         the interface of an engine
openvino       the engine for CPUs
pytorch        the engine for GPUs, and for models that OpenVINO can't load
graph          the files that OpenVINO loads, next to a model
convert        makes these files
conversion     runs `convert` once for all workers of a server
quantize       adds an int8 graph
quantization   how much accuracy int8 may lose; runs `quantize`
choose         loads the model in a folder with the engine that fits this host
model_folder   finds the model in a folder
batches        which windows go through the model together
model_check    checks a model and its tokenizer, in a server and in a training job
"""
