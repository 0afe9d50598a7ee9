"""The program of the inference image: a question-answering server behind /ping and /invocations.

In the order in which a request reaches them:

entry          process 1: reads the settings, opens the port, starts the workers and the server
http           the running server: connections, routes, the log line of each request, the page for browsers
admission      how much the server holds at a time; `limits` says how much one request may ask for
models         one model and its workers, and on a multi-model endpoint the models by name
questions      our model: bodies to questions, windows and answers
workers        the processes that hold a model or run a handler
user_code      a user's handler (inference.py), in a worker

What several of them use: `errors` and their HTTP statuses, `responses`, `configuration` (environment variables),
`observing` (log and metrics), `hub` (fetches HF_MODEL_ID), `once` (one worker makes files that all use).

Two names that users know: `pipeline` (our model without a server, for handlers) and `gpu_check` (a check of the command
`gpu-check`).
"""
