"""From a built image to the `image_uri` of an estimator: repository, login, push, and the manifest that is read back.

In the order of a push: `commands` (arguments), `destination` (where), `publish` (several at once), `release` (one),
which prepares the `repository`, has the engine `push`, and lets `registry` look at the manifest and attach the bill of
materials. `promote` copies between two registries.
"""
