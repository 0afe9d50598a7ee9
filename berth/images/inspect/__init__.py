"""What an image weighs and holds, and what of it is old.

`size` measures an image by its `layers` and packages (`package_sizes`) and compares it with its `budget`.

`image_listing` has the image list its files and records (`list_files`), `dpkg` and `distributions` read the `packages`
out of them, `cyclonedx` makes the bill of materials, with licences by `spdx`; `sbom` keeps and writes it.
`saved_image` reads an image's layers, for `diff` between two. `outdated` says what is newer or insecure: `releases` and
`advisories` of the locked packages, `base_releases`, and Debian's archive (`debian`). `commands` are the commands.
"""
