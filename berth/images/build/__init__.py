"""Builds and tests an image.

prepare        provides the inputs of a build: base image, network settings, files, wheels
plan           decides tags, labels and the command line
docker_build   runs that command line; buildkit_log reads its progress
base           the image that a build starts from
revision       the commit that is built, and whether the checkout differs from it
image_tests    runs the image tests
"""
