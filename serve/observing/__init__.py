"""The server's log and metrics.

log       the format and the level of log lines
figures   the stages of a request and the work of the queue, for log and metrics
metrics   Prometheus's metrics at /metrics
"""
