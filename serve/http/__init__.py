"""The running server, from a client's connection to the response.

server       starts to listen, handles signals, stops
sockets      the port, and the limit of open files
connection   how many clients connect, and how long the server waits for each
app          the routes
access_log   logs and counts each request
invocation   receives a body within its limits, and sends the response
page         the page at / for browsers
"""
