"""How words become values without pydantic, whose import would double the start of a short command.

typer turns every option into its type through pydantic, those that were not given too. Texts, plain numbers and fixed
words need none of it; whatever else there is, and every value that does not fit, is left to typer and its complaints.
"""

import enum
import math
from typing import Any

import typer

UNSURE = object()


def lighten(command: Any) -> Any:
    """The command, with its parameters and those below it read the light way where there is one."""
    for parameter in command.params:
        _lighten(parameter)
    for child in getattr(command, "commands", {}).values():
        lighten(child)
    return command


def _lighten(parameter: Any) -> None:
    by_typer = parameter.process_value

    def process_value(ctx: Any, given: Any) -> Any:
        value = light_value(parameter, given)
        if value is UNSURE:
            return by_typer(ctx, given)
        return value if parameter.callback is None else parameter.callback(ctx, parameter, value)

    parameter.process_value = process_value


def light_value(parameter: Any, given: Any) -> Any:
    """The value of what was given, or UNSURE."""
    if given is None:
        return UNSURE if parameter.required else () if _takes_many(parameter) else None
    kind = parameter.type_descriptor.annotation
    if _takes_many(parameter):
        return tuple(given) if kind == list[str] and given and not isinstance(given, str) else UNSURE
    if kind is str or kind is bool:
        return given if isinstance(given, kind) else UNSURE
    if kind is int or kind is float:
        return _number(kind, given, parameter)
    return _word(given, parameter.type_descriptor.choices or ())


def _takes_many(parameter: Any) -> bool:
    return bool(getattr(parameter, "multiple", False)) or parameter.nargs != 1


def _number(kind: type[int] | type[float], given: Any, parameter: Any) -> Any:
    try:
        number = kind(given)
    except (TypeError, ValueError):
        return UNSURE
    if not math.isfinite(number):
        raise typer.BadParameter("a number with an end is needed")
    if parameter.min is not None and not number >= parameter.min:
        return UNSURE
    return UNSURE if parameter.max is not None and not number <= parameter.max else number


def _word(given: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if given == (choice.value if isinstance(choice, enum.Enum) else choice):
            return choice
    return UNSURE
