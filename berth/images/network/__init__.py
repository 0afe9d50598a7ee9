"""What this machine's network asks of a build, and the files that a build fetches itself.

build_network   CA bundle, package indexes, proxies and apt's settings, as secrets of the build
pip_settings, uv_settings, apt   where these are read from
build_files     the files that no package index has, such as EFA's installer
downloads       fetches them from a mirror or from their own URLs
"""
