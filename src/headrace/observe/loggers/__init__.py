"""Data loggers: objects of the program that are shown the messages of ports."""
