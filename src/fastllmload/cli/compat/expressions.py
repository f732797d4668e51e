"""Texts with arithmetic in braces, as the tables of tools have them: `uniform:{max(1, floor(length * ratio))},{length}`."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping

from fastllmload.errors import InputError

FUNCTIONS: dict[str, Callable[..., float]] = {
    "max": max, "min": min, "floor": math.floor, "ceil": math.ceil, "log": math.log,
    "sqrt": math.sqrt,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
PLAIN = re.compile(r"[\w.-]+")
NAME = re.compile(r"[A-Za-z_][\w.]*")
BRACES = re.compile(r"\{([^{}]*)\}")


def known(text: str, variables: Mapping[str, str]) -> bool:
    """Whether all variables in braces of *text* are among *variables*."""
    return used_in(text) <= variables.keys()


def used_in(text: str) -> set[str]:
    """Names of the variables in braces of *text*."""
    return {name for part in BRACES.findall(text) for name in NAME.findall(part)} - FUNCTIONS.keys()


def filled(text: str, variables: Mapping[str, str]) -> str:
    """*text* with the variable, or the value of the expression, of each pair of braces."""
    return BRACES.sub(lambda found: _value(found[1], variables), text)


def _value(expression: str, variables: Mapping[str, str]) -> str:
    if PLAIN.fullmatch(expression):
        return variables[expression]
    try:
        value = _number(ast.parse(expression, mode="eval").body, variables)
        return str(int(value)) if value == int(value) else f"{value:.9g}"
    except (ArithmeticError, ValueError):
        given = ", ".join(f"{name} {variables[name]}" for name in NAME.findall(expression) if name in variables)
        raise InputError("number-invalid", f"{expression} has no value for {given}; give other numbers") from None


def _number(node: ast.expr, variables: Mapping[str, str]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            try:
                return float(variables[name])
            except ValueError:
                raise InputError("number-invalid", f"{name} is {variables[name]!r} and must be a number") from None
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](_number(left, variables), _number(right, variables))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return FUNCTIONS[name](*(_number(argument, variables) for argument in arguments))
    raise TypeError(ast.dump(node))  # of a table of ours
