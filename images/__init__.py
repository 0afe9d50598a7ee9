"""How an image comes about on your machine, in the order of a build.

pins, pins_form, software_form   docker/pins.toml as objects, checked
locks, lock_text, layer_files    what is made of it            lock_check           locks older than their profile
prepare           what a build needs: decided, provided        parts                files that a build may leave out
build_network     this machine's network, as secrets           base                 the image that a build starts from
build_files, downloads   files that no index has               plan                 tags, labels, command line; pure
build             runs the plan                                buildkit_log         reads its progress
selection, local_image   an image of the engine                image_tests, test_lines   the tests that it has to pass
size, layers, budget     what it weighs                        inventory/           what it holds
doctor, probe     what this machine lacks                      clean                what the kit made, removed
apt, pip_settings, uv_settings   for build_network             package_sizes        for size, run inside an image
index_metadata    the releases that the package index lists
uv                where it is, and its settings               scratch              folders of a command's own time
revision          the commit that is built, and what makes it dirty
profiles/         profiles of the user's own
commands, options arguments of build.py, of this folder and of many
"""
