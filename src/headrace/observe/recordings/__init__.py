"""Recordings: the messages of ports in files, and runs that play them."""
