"""Formulas in data: arithmetic of a few named numbers, as the code of the engine that they are taken from has it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rooflm.units import Num, larger, pick

OPERATIONS: Mapping[type, Any] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
WHERE: Mapping[type, Any] = {ast.Lt: operator.lt, ast.Gt: operator.gt}
parsed = lru_cache(lambda text: ast.parse(text, mode="eval").body)


def worked_out(text: str, of: Mapping[str, Num]) -> Num:
    """The value of a formula of these names: `+ - *`, `max` of two, `A if B < C else D`. ValueError for anything
    else.

    >>> worked_out("max(512 + 2 * tokens, 1024) if card > 80 else 0.1 * card", {"card": 96.0, "tokens": 300.0})
    1112.0
    """

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=int() | float() as number) if type(number) is not bool:
                return float(number)
            case ast.Name(id=name) if name in of:
                return of[name]
            case ast.BinOp(left=a, op=op, right=b) if type(op) in OPERATIONS:
                return OPERATIONS[type(op)](value(a), value(b))
            case ast.IfExp(test=ast.Compare(left=a, ops=[op], comparators=[b]), body=c, orelse=d) if type(op) in WHERE:
                return pick(WHERE[type(op)](value(a), value(b)), value(c), value(d))
            case ast.Call(func=ast.Name(id="max"), args=[a, b], keywords=[]):
                return larger(value(a), value(b))
        raise ValueError(ast.unparse(node))

    return value(parsed(text))
