"""From a built image to the `image_uri` of an estimator: repository, login, push, and the manifest that is read back.

Folders import downwards: `commands` and its modules, then `push`, `repositories` and `registry`.

commands      the arguments of push, promote and uri
push          several images to several repositories, by the engine
promote       a copy from one registry to another
uri, snippet  what an estimator takes
display       what a push and a promotion show
repositories  repositories: names, logins, settings, tags, and the record of what was pushed
registry      a client of any registry; it knows neither accounts nor an engine
"""
