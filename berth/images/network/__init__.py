"""This machine's network settings for a build, and the files that a build downloads itself.

build_network   CA bundle, package indexes, proxies and apt's settings, as secrets of the build
pip_settings, uv_settings, apt   read these settings
build_files     the files that no package index has, such as EFA's installer
downloads       downloads them from a mirror or from their own URLs
"""
