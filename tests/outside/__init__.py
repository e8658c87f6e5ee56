"""What somebody adds to headrace from outside, by the steps that CONTRIBUTING describes."""
