"""What a job tells of itself, while it runs and at its end.

report                       how run_qa writes to the log, and JSON for people
progress, throughput, phases lines while it trains; how fast it is, and where its seconds go
summary                      the table at the end
records, curve               metrics.json and history.json, TensorBoard's folder, and training.svg
event_files                  TensorBoard's files, one for each writer
trace, step_times            where the time of a few steps goes, where BERTH_TRACE asks
"""
