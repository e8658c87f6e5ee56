"""A stand-in for the MONAI Deploy App SDK where it is not installed: what one program uses, made as it makes it."""
