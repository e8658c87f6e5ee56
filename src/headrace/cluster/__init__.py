"""The parts of a program on a cluster that Ray manages. Private to headrace; the extra is ``headrace[cluster]``.

Ray places, starts, restarts and ends the processes. Frames travel over headrace's own links.
"""
