"""The registry: the names by which images are found. Repository, policies, login and push have their place here."""
