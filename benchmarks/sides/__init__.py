"""headrace beside its peers: the claims of the README and of the docs, each by a command (`headrace bench`)."""
