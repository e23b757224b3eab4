"""What the program says of itself: traces and log lines. And the crash points that tests use."""
