"""A served model on this machine.

endpoint   the inference image behind a loopback port
int8       an int8 graph for a model, made and measured in the training image
"""
