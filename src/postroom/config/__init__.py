"""What is set: values and their checks, and how they are read from files and the environment."""
