"""From a built image to the `image_uri` of an estimator: create the repository, log in, push, read the manifest back.

Imports go downwards: `commands` and its modules, then `push`, `repositories` and `registry`.

commands      the commands push, promote and uri
push          pushes images to repositories, with the engine
promote       copies an image from one registry to another
uri, snippet  the image_uri, and an estimator to paste
display       progress of a push and of a promotion
repositories  repositories: names, logins, settings, tags, and the record of pushes
registry      a client for any registry; it needs no AWS account and no engine
"""
