"""What an image holds, and what of it is old.

`inside` has the image list its files and records (`listing`), `syft` finds the packages in them, and `bom` makes the
bill of materials, with licences by `spdx`; `bills` keeps and writes it, `licences` reports them. `contents` reads an
image's layers, for `diff` between two. `debian` keeps the versions that were tested. `outdated` says what is newer or
insecure: `releases` and `advisories` of the packages that are `locked`, and Debian's. `commands` are those of build.py.
"""
