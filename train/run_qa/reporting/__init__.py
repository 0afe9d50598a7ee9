"""The log lines and metrics of a job, while it runs and at its end.

report                       writes to the log, and readable JSON
progress, throughput, phases progress lines of the training; its speed; the seconds of each phase
summary                      the table at the end of the log
records, curve               metrics.json and history.json, TensorBoard's folder, and training.svg
event_files                  gives each of TensorBoard's writers a separate file
trace, step_times            profile a few steps, if BERTH_TRACE is set
"""
