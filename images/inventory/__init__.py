"""What an image holds, and what of it is old.

`image_listing` has the image list its files and records (`list_files`), `dpkg` and `distributions` read the `packages`
out of them, `cyclonedx` makes the bill of materials, with licences by `spdx`; `sbom` keeps and writes it.
`saved_image` reads an image's layers, for `diff` between two. `outdated` says what is newer or insecure: `releases` and
`advisories` of the `locked_packages`, `base_releases`, and Debian's archive (`debian`). `commands` are the commands.
"""
