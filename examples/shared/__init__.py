"""What several examples share; the programs to read are in the folder above."""
