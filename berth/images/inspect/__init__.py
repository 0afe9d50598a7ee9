"""Size, contents and insecure packages of an image. `commands` has the commands of build.py.

`size` measures an image by `layers` and packages (`package_sizes`); `budget` compares it with its budget.

`image_listing` runs `list_files` in the image to list its files and records. `dpkg` and `distributions` find the
`packages` in them, `cyclonedx` makes the bill of materials, with licences from `spdx`; `sbom` caches and writes it.
`saved_image` reads an image's layers for `diff`. `outdated` reports insecure packages: known vulnerabilities of the
locked packages (`advisories`), and updates of Debian's archive (`debian`).
"""
