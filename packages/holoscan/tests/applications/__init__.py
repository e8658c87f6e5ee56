"""Programs in the shape of the most used applications, written for the Holoscan SDK, on made-up data.

`programs` has each program with its configuration file, as users write them; `data` makes the clips and models that
they read; `running` runs one through ``headrace run``, in this process.
"""
