"""The metrics that well-known scripts ask `evaluate` for, without a network: squad, squad_v2, glue and accuracy.

loading  evaluate.load and datasets.load_metric: these names are ours, any other goes its usual way
modules  the four as modules of evaluate's
figures  what they come to

Called by berth.train.startup.start_hook once a program has imported evaluate or datasets, and by nothing of the kit.
"""
