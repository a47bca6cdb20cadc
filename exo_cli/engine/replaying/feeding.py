"""Feeding: all that a source holds into a fold, and what becomes of what cannot be used."""

import shlex
from typing import assert_never

from exo_cli.engine.core.errors import BadDataError
from exo_cli.engine.core.foreign.translator import UnknownKindError
from exo_cli.engine.core.recording import RecordingFold
from exo_cli.engine.core.replay import Fold
from exo_cli.engine.core.wire import BadLineError
from exo_cli.engine.log.recordings import Foreign
from exo_cli.engine.log.scan import Entry, Seen, Skipped, Start, Torn
from exo_cli.engine.paths.target import shown
from exo_cli.engine.replaying.source import Lenient, Source


def fold_of(source: Source, *, check: bool = False) -> Fold:
    """The fold that a source needs; it was fed nothing."""
    return RecordingFold(check=check) if source.is_recording else Fold(check=check)


def fold_source(fold: Fold, source: Source, lenient: Lenient, *, strict: bool = False) -> bool:
    """Feed all; whether there was anything of a log. Unknown events of a recording are counted, unless `strict`."""
    if isinstance(fold, RecordingFold):
        return fold_recording(fold, source, Lenient(lenient.skip_bad, lenient.skip_unknown or not strict))
    return fold_lines(fold, source, lenient)


def fold_lines(fold: Fold, source: Source, lenient: Lenient, start: Start | None = None) -> bool:
    """Feed all of it, or what is behind `start`; whether there was anything of a log."""
    feed, has_any = fold.feed, False
    for seen in source.lines(lenient, start):
        if type(seen) is Entry:
            try:
                feed(seen.line, seen.size)
            except BadLineError as error:
                if not lenient.skip_bad:
                    raise _damaged(seen, error) from None
                fold.skip(unknown=False)
        else:
            _pass(fold, seen)
        has_any = has_any or type(seen) is Entry or (type(seen) is Torn and bool(seen.bytes))
        if fold.is_done:
            break
    return has_any


def fold_recording(fold: RecordingFold, source: Source, lenient: Lenient) -> bool:
    """The same of a recording."""
    has_any = False
    for seen in source.events():
        has_any = True
        if isinstance(seen, Torn):
            _pass(fold, seen)
            break
        try:
            fold.feed_foreign(seen.kind, seen.fields, seen.size)
        except ValueError as error:
            is_unknown = isinstance(error, UnknownKindError)
            if not (lenient.skip_unknown if is_unknown else lenient.skip_bad):
                raise _unusable(source.name, fold, seen, error) from None
            fold.pass_over(unknown=is_unknown)
        if fold.is_done:
            break
    return has_any


def _unusable(name: str, fold: Fold, seen: Foreign, error: ValueError) -> BadDataError:
    index = fold.state.index + 1
    details: dict[str, object] = {"path": name, "record": index, "byte": seen.offset}
    why = str(error).splitlines()[0]
    return BadDataError(
        f"{name}: record {index} (byte {seen.offset}) cannot be used: {why}",
        f"exo replay --{'skip-unknown' if isinstance(error, UnknownKindError) else 'skip-bad'} {shlex.quote(name)}",
        details=details,
    )


def _pass(fold: Fold, seen: Seen) -> None:
    match seen:
        case Torn():
            fold.tear(seen.path, seen.offset, seen.bytes)
        case Skipped():
            fold.skip(unknown=seen.unknown)
        case Entry():
            fold.feed(seen.line, seen.size)
        case _:
            assert_never(seen)


def _damaged(seen: Entry, error: BadLineError) -> BadDataError:
    details: dict[str, object] = {"path": seen.path, "line": seen.number, "byte": seen.offset}
    place = f"{seen.path}: line {seen.number}, byte {seen.offset}"
    return BadDataError(
        f"{place} cannot be used: {error}", f"exo replay --skip-bad {shown(seen.path)}", details=details
    )
