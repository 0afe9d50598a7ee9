"""From a built image to the `image_uri` of an estimator: repository, login, push, and the manifest that is read back.

In the order of a push: `commands` (arguments), `destination` (where), `publish` (several at once), `release` (one),
which prepares the `repository`, has the engine `push`, lets the `guard` look at the manifest, and `attach`es the bill
of materials. `distribution` speaks with any registry, `promote` copies between two.
"""
