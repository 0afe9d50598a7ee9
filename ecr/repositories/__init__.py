"""Repositories for images: names, logins, settings and tags, and the record of pushes.

names              validates hosts, accounts, regions, repositories and tags
destination        the repositories of a push, from the command line's options
aws                accounts, regions and clients, as boto3 finds them
aws_errors         AWS's and boto3's errors, as sentences
login              tokens and passwords, in memory only
repository_client  a repository with its registry, its login and ECR's API
documents          the policies of ecr/policies/
repository         settings of a repository in ECR: read, compared, changed on request
tags               the tags that an image gets if others have the wanted ones
retention          the tag that keeps a release from expiring
record             dist/images.json
"""
