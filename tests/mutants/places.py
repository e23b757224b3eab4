"""Where the source can be changed in one place, and the changes: what `tests.mutants.sample` draws from.

A change is spliced into the text, so that all other lines stay as they are. Left out is what no test can see: annotations,
docstrings, `if TYPE_CHECKING`, `__slots__` and `__all__`, and the options of a dataclass, which the type checker looks after.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "postroom"

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
"""What a comparison becomes: one step aside, or its contrary."""


@dataclass(frozen=True)
class Place:
    """One change that can be made to one file."""

    file: str
    """Its path below `src/postroom`."""
    scope: str
    kind: str
    line: int
    begin: int
    end: int
    new: str
    """What stands between the bytes *begin* and *end* then."""
    summary: str
    """The lines before and after, without their margins: `before => after`."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind} in {self.scope}"

    @property
    def key(self) -> str:
        """What names this change wherever its line moves to."""
        return f"{self.file} | {self.scope} | {self.summary}"

    def applied_to(self, source: bytes) -> bytes:
        """Return the file with the change made."""
        return source[: self.begin] + self.new.encode() + source[self.end :]


def places(file: Path, root: Path = SOURCE) -> list[Place]:
    """Return every change that can be made to *file*, in the order of its text."""
    finder = _Finder(file.relative_to(root).as_posix(), file.read_bytes())
    finder.visit(finder.tree)
    return sorted(finder.found, key=lambda place: (place.begin, place.end, place.kind))


class _Finder(ast.NodeVisitor):
    """Walks one file, and remembers what may be changed there, with the names of the classes and functions around it."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file, self.source = file, source
        self.tree = ast.parse(source)
        self.found: list[Place] = []
        self._scope: list[str] = []
        lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))

    def generic_visit(self, node: ast.AST) -> None:
        for kind, target, new in self._changes(node):
            self._add(kind, target, new)
        super().generic_visit(node)

    def _changes(self, node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
        """The kinds of change: what each makes of a node."""
        yield from self._conditions(node)
        match node:
            case ast.Constant(value=bool(value)):
                yield "flipped bool", node, str(not value)
            case ast.Constant(value=int(value)):
                yield "int + 1", node, str(value + 1)
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield "dropped call", node, "pass"
            case ast.Raise():
                yield "dropped raise", node, "pass"
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield "return None", node, "return None"

    def _conditions(self, node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
        """The changes of what decides."""
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield "comparison", node, f"({self._text(left)} {COMPARISONS[type(op)]} {self._text(right)})"
            case ast.BoolOp(op=op, values=values):
                other = " or " if isinstance(op, ast.And) else " and "
                yield "and/or", node, f"({other.join(self._text(value) for value in values)})"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield "dropped not", node, self._text(operand)
            case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Constant):
                yield "negation", test, f"(not {self._text(test)})"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                swapped = f"({self._text(orelse)} if {self._text(test)} else {self._text(body)})"
                yield "swapped branches", node, swapped

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._named(node, [*node.bases, *node.body])

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        defaults = [*node.args.defaults, *(default for default in node.args.kw_defaults if default)]
        self._named(node, [*node.decorator_list, *defaults, *node.body])

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(target, ast.Name) and target.id in {"__slots__", "__all__"} for target in node.targets):
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave f-strings alone: before Python 3.12 a part of one has no place of its own."""

    def _named(
        self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, parts: list[ast.expr | ast.stmt]
    ) -> None:
        self._scope.append(node.name)
        for part in parts:
            self.visit(part)
        self._scope.pop()

    def _add(self, kind: str, node: ast.expr | ast.stmt, new: str) -> None:
        begin, end = self._span(node)
        first, last = self.source.rfind(b"\n", 0, begin) + 1, self.source.find(b"\n", end)
        last = len(self.source) if last < 0 else last
        before = self.source[first:last].decode()
        after = (self.source[first:begin] + new.encode() + self.source[end:last]).decode()
        scope = ".".join(self._scope) or "module"
        summary = f"{' '.join(before.split())} => {' '.join(after.split())}"
        self.found.append(Place(self.file, scope, kind, node.lineno, begin, end, new, summary))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        """What stands there, in brackets unless it holds together anywhere."""
        begin, end = self._span(node)
        text = self.source[begin:end].decode()
        holds = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) or _is_none(node)
        return text if holds else f"({text})"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
