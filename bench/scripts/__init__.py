"""What the programs that run other people's scripts share: published_scripts, older_scripts and smdistributed_scripts.

common                where the scripts lie, a job to its end, a page of results
smdistributed_table   which scripts are written for smdistributed, how each is started, and what is expected of it
records               what ranks kept (bench/doubles/start.py), compared with one process
smdistributed_jobs    a run as a job of the training image, and its reference in one process
trainer               run_glue.py of transformers 4.26, which brings its own loop
"""
