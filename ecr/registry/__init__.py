"""A client of any registry, AWS's or not: it knows neither accounts nor a Docker engine.

`client` asks and sends (the distribution specification), over `transport` (tries, redirects, certificates by `trust`)
and `session` (what a redirect may not take along), with a login by `challenge`, blobs by `upload`; `addresses` and
`references` take names apart, `errors` says what a registry answered. `manifest` reads and makes manifests, `verify`
holds one to what SageMaker takes (`compress` gives layers gzip), `referrers` puts a document next to it.
"""
