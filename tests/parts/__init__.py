"""Parts of applications, cut and run on threads of one process."""
