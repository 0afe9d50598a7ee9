"""Repositories that images are pushed to: how they are called, reached and set, and what was pushed where.

names              hosts, accounts, regions, repositories and tags: what is wrong with one
destination        a repository, from the options of the command line
aws                accounts, regions and clients, as boto3 finds them
aws_errors         AWS's and boto3's errors, as sentences
login              tokens and passwords, in memory only
repository_client  the registry's interface of a repository, its login, and ECR's control plane
documents          the policies of ecr/policies/
repository         the settings of a repository in ECR: read, compared, changed where asked
tags               the tags that an image gets where others have the wanted ones
retention          the tag by which a release never expires
record             dist/images.json
"""
