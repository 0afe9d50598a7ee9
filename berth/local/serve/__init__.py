"""Serves a model on this machine, and prepares an int8 version of it.

endpoint   the inference image on a loopback port
int8       adds an int8 graph to a model, made and measured in the training image
"""
