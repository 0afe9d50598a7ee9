"""The metrics that well-known scripts load with `evaluate`, without a network: squad, squad_v2, glue and accuracy.

loading  patches evaluate.load and datasets.load_metric: they return our metrics for these names
modules  the four metrics as classes of evaluate
figures  computes their values

berth.train.startup.start_hook calls `loading` after the import of evaluate or datasets; berth does not use them.
"""
