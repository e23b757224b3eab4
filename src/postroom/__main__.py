"""`python -m postroom` is `postroom`."""

from __future__ import annotations

from postroom.cli import main

if __name__ == "__main__":
    main()
