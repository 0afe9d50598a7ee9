"""From channels, files and the hub to batches.

data, questions        find the source of each split, and read its questions one after another
hub                    checks once whether the hub can be reached, before anything is loaded from it
window_file, job_data  keep the windows to train on in files; read all data of a job
features               turns windows into batches, and orders them
"""
