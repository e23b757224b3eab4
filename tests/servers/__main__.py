"""`python -m tests.servers`: what this machine can have. Each server is really started, and stopped again."""

from __future__ import annotations

import argparse
import json
import sys

from tests.servers import Unavailable, probe


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("--json", action="store_true", help="for machines")
    wanted = parser.parse_args()
    try:
        rows = [describe(answer) for answer in probe()]
    except KeyboardInterrupt:
        print("Interrupted; every server that was started has been stopped.", file=sys.stderr)
        return 130
    print(json.dumps(rows, indent=2) if wanted.json else table(rows))
    return 0


def describe(answer: object) -> dict[str, object]:
    """The facts about one server, had or not."""
    if isinstance(answer, Unavailable):
        return {
            "name": answer.name,
            "available": False,
            "version": None,
            "source": None,
            "reasons": answer.reasons,
        }
    facts = {field: getattr(answer, field) for field in ("name", "version", "source")}
    return {**facts, "available": True, "reasons": {}}


def table(rows: list[dict[str, object]]) -> str:
    """The same for people, aligned."""
    lines = [("server", "available", "version", "from, or why not")]
    for row in rows:
        reasons = row["reasons"] if isinstance(row["reasons"], dict) else {}
        notes = [f"{source}: {reason}" for source, reason in reasons.items()] or [str(row["source"])]
        lines.append((str(row["name"]), "yes" if row["available"] else "NO", str(row["version"] or "-"), notes[0]))
        lines += [("", "", "", note) for note in notes[1:]]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    return "\n".join("  ".join([*(line[i].ljust(widths[i]) for i in range(3)), line[3]]).rstrip() for line in lines)


if __name__ == "__main__":
    sys.exit(main())
