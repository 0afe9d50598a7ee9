"""From a built image to the `image_uri` of an estimator: repository, login, push, and the manifest that is read back.

In the order of a push: `commands` (arguments), `destination` (where), `push/` (options, preflight, many images, one),
which prepares the `repository` by its policies (`documents`), has the engine push, and lets `registry/` verify the
manifest and attach the bill of materials. `record` keeps what was pushed, for `uri`; `promote` copies between two
registries. Both reach a repository by a `repository_client`, and choose `tags` there. `aws` and `aws_errors` are
boto3's part; `names` says what is wrong with one, `retention` what never expires, `display` shows a push, and `snippet`
is what it ends with.
"""
