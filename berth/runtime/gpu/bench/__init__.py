"""Measures a machine's GPUs: `python -P -m berth.runtime.gpu.bench.check`.

check        runs the checks; prints a table and writes JSON
child        runs one check in a process of its own
collectives  check: all-reduce
compute      checks: matrix product, training step (berth.serve.gpu_check has the one of inference)
peaks        maximum speed of chips and links; pure
machine      versions of hardware and software
record       the result of a check; the table
timing       measures the seconds of a call
"""
