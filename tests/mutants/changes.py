"""The small changes that can be made to a file of Python, one at a time: each is a mutant that tests should notice."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift,
}  # fmt: skip
_PAIRS = ["min max", "any all", "minimum maximum", "argmin argmax", "floor ceil", "left right"]
_NAMES = {a: b for pair in map(str.split, _PAIRS) for a, b in (pair, reversed(pair))}
#: Calls in whose place one of what they are given may stand.
_LIMITS, _DROPPED = ("min", "max", "minimum", "maximum"), ("sorted", "abs", "clip", "unique")


@dataclass(frozen=True)
class Change:
    """One place of a file, from one byte to another, and what stands there instead.

    ``statement``: the line of what is seen to run; ``inside`` a function, or else when the file is imported;
    ``names``: those that the statement gives a value.
    """

    line: int
    statement: int
    inside: bool
    names: tuple[str, ...]
    start: int
    end: int
    new: str

    def apply(self, source: bytes) -> bytes:
        """Return the mutant."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def changes(source: bytes) -> Iterator[Change]:
    """Return all changes of a file."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    for node, statement, inside, new in _walk(ast.parse(source), None, False):
        start, end = lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset
        yield Change(node.lineno, statement.lineno, inside, tuple(stored(statement)), start, end, new)


def stored(statement: ast.stmt) -> set[str]:
    """Return the names to which a statement gives a value, without those within a function."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _walk(node: ast.AST, statement: ast.stmt | None, inside: bool) -> Iterator[tuple[ast.AST, ast.stmt, bool, str]]:
    if isinstance(node, ast.JoinedStr | ast.Assert | ast.arg | ast.Import | ast.ImportFrom):
        return  # the first has wrong places before Python 3.12
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return  # of zip, which is told so where lengths are the same
    statement = node if isinstance(node, ast.stmt) else statement
    if statement is not None and not isinstance(statement, ast.ClassDef):
        yield from ((node, statement, inside, new) for new in _instead_of(node, inside))
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test, statement, inside, "False"
        if isinstance(node, ast.comprehension):
            yield from ((test, statement, inside, "True") for test in node.ifs)
    function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "keys") or isinstance(node, ast.Raise):
            continue  # keys: of somebody's table, as a rule
        for child in value if isinstance(value, list) else [value]:
            text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if isinstance(child, ast.AST) and not text:
                yield from _walk(child, statement, inside or (function and name == "body"))


def _instead_of(node: ast.AST, inside: bool) -> Iterator[str]:
    other = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in _OPERATORS:
            other.ops = [_OPERATORS[type(op)]()]
            yield f"({ast.unparse(other)})"
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in _OPERATORS:
            other.op = _OPERATORS[type(op)]()
            yield f"({ast.unparse(other)})"
        case ast.BinOp(op=ast.Pow()):
            yield f"({ast.unparse(node.left)})"
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub()):
            yield f"({ast.unparse(node.operand)})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            others = (value + 1, value - 1) if value < 100 else (value * 2, value // 2)  # one more is the same limit
            yield from (str(other) for other in others if other >= 0)
        case ast.Constant(value=float(value)):
            yield from (repr(value * 2), repr(value / 2)) if value else ["1.0"]
        case ast.Constant(value="left" | "right" as value):
            yield repr(_NAMES[value])
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as function, args=given):
            if name in _NAMES:
                setattr(other.func, "id" if isinstance(function, ast.Name) else "attr", _NAMES[name])
                yield ast.unparse(other)
            method = isinstance(function, ast.Attribute) and ast.unparse(function.value) != "np"
            kept = [function.value] if method and name == "clip" else given[: 2 if name in _LIMITS else 1]
            if name in _DROPPED or (name in _LIMITS and len(given) > 1 and not isinstance(given[0], ast.Starred)):
                yield from (f"({ast.unparse(k)})" for k in kept)
        case ast.IfExp():
            yield f"({ast.unparse(node.body)})"
        case ast.Return(value=ast.expr() as value) if inside and not isinstance(value, ast.Constant):
            yield "return None"
        case ast.AugAssign() | ast.Expr(value=ast.Call()) | ast.Raise() if inside:
            yield "pass"
        case ast.Continue():
            yield "break"
