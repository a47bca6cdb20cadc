"""Reading the script of the scripted engine: text to directives, with the number of the line at fault.

The format, one directive a line; blank lines and lines that begin with `#` are ignored:

    token TEXT          one token of output; `"..."` is a JSON string (for blanks at the ends and for line ends);
                        {n} in it is the number of tokens before it in this request
    echo                the last user message, one token a word
    sleep SECONDS       wait
    rate TOKENS         from here on at most so many tokens a second (0: as fast as they come)
    repeat N DIRECTIVE  do it N times; `repeat forever DIRECTIVE` until the request is cancelled or full
    block               never go on; a cancel (or the order to stop) ends it
    block hard          never go on, whatever happens
    raise MESSAGE       fail here
    abort               the process aborts (a real SIGABRT)
    exit CODE           the process exits
    print TEXT          print on standard output, as a library might
    finish REASON       the request ends here: stop (also the end of the script) or length
    layers N            while loading: report N layers as loaded
    once FILE DIRECTIVE only if FILE is not there yet; it is made (so that a restarted process gets past it)

    on PHASE DIRECTIVE  do it in that phase, not in a request; PHASE is connect, load, warmup, follow or stop

    request N:          the lines below are the body of the Nth request of this process (counted from 1)
    rank N:             the lines below hold on that rank only
    always:             the lines below are for requests without a body of their own, on every rank (as at the top)
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from exo_cli.engine.inference import EngineError

PHASES = ("connect", "load", "warmup", "follow", "stop")
REASONS = ("stop", "length")


@dataclass(frozen=True, slots=True)
class Directive:
    """One thing to do. `count` is None for ever; `inner` is what `repeat` and `once` do."""

    verb: str
    text: str = ""
    number: float = 0
    count: int | None = None
    inner: "Directive | None" = None


@dataclass(slots=True)
class Script:
    """What a rank does: bodies of requests by their number (0: any other), and directives by phase."""

    requests: dict[int, list[Directive]] = field(default_factory=dict[int, list[Directive]])
    phases: dict[str, list[Directive]] = field(default_factory=dict[str, list[Directive]])

    def body(self, number: int) -> list[Directive]:
        """What the request of that number does."""
        return self.requests.get(number, self.requests.get(0, []))


def read_script(lines: Iterable[str], rank: int) -> Script:
    """The script as it holds for one rank.

    Raises:
        EngineError: a line is wrong; the message has its number.
    """
    script, request, here = Script(), 0, True
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        try:
            if section := re.fullmatch(r"(request|rank|always)(?:\s+(\d+))?\s*:", line):
                request, here = _section(section[1], section[2], rank)
            elif line.startswith("on "):
                phase, _, rest = line.removeprefix("on ").strip().partition(" ")
                if phase not in PHASES:
                    raise ValueError(f"unknown phase {phase!r} (known: {', '.join(PHASES)})")
                directive = _directive(rest)
                if here:
                    script.phases.setdefault(phase, []).append(directive)
            else:
                directive = _directive(line)
                if here:
                    script.requests.setdefault(request, []).append(directive)
        except ValueError as error:
            raise EngineError(f"script line {number}: {error}", "bad_script") from error
    return script


def _section(kind: str, number: str | None, rank: int) -> tuple[int, bool]:
    if (number is None) != (kind == "always"):
        raise ValueError("expected `request N:`, `rank N:` or `always:`")
    if kind == "rank":
        return 0, int(number or 0) == rank
    return int(number or 0), True


def _directive(line: str) -> Directive:
    verb, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if verb in ("token", "raise", "print"):
        return Directive(verb, text=_text(rest))
    if verb in ("sleep", "rate", "exit", "layers"):
        return Directive(verb, number=_number(verb, rest))
    if verb in ("abort", "echo"):
        if rest:
            raise ValueError(f"{verb} takes nothing, got {rest!r}")
        return Directive(verb)
    if verb == "block" and rest in ("", "hard"):
        return Directive(verb, text=rest)
    if verb == "finish" and rest in REASONS:
        return Directive(verb, text=rest)
    if verb in ("repeat", "once"):
        argument, _, inner = rest.partition(" ")
        if not inner.strip():
            raise ValueError(f"{verb} needs an argument and a directive")
        if verb == "once":
            return Directive(verb, text=argument, inner=_directive(inner))
        count = None if argument == "forever" else int(_number(verb, argument))
        return Directive(verb, count=count, inner=_directive(inner))
    raise ValueError(f"cannot read {line!r}")


def _text(rest: str) -> str:
    if not rest.startswith('"'):
        return rest
    value: object = json.loads(rest)
    if not isinstance(value, str):
        raise ValueError(f"{rest} is no JSON string")
    return value


def _number(verb: str, rest: str) -> float:
    try:
        value = float(rest)
    except ValueError:
        raise ValueError(f"{verb} needs a number, got {rest!r}") from None
    if not 0 <= value < 1e9:
        raise ValueError(f"{verb} needs a number from 0, got {rest!r}")
    return value
