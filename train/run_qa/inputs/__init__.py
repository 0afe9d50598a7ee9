"""From channels, files and the hub to batches.

data, questions        where the questions of each split come from, and they themselves, one after another
hub                    whether the hub can be reached, before anything is asked of it
window_file, job_data  the windows to train on, in files; all that a job reads
features               windows to batches, and in which order
"""
