"""Rotation: what becomes of segments that are closed. They are packed (zstd), and the oldest go when all are too much.

The newest closed one stays as it is, so that a follower that is a little behind still gets records and no snapshot.
Nothing here can cost a record that counts: whatever fails is tried again at the next rotation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from exo_cli.engine.log.scan import segments_of
from exo_cli.engine.log.segment import make_durable, make_folder_durable
from exo_cli.engine.log.sources import PACKED

_DRAFT = ".tmp"


@dataclass(frozen=True, slots=True)
class Limits:
    """When a segment is closed, and how much all of them may take on disk together. Bytes."""

    segment_bytes: int = 16 << 20
    total_bytes: int = 512 << 20


def tidy(folder: Path, limits: Limits) -> Iterator[str]:
    """Pack what is due and drop what is too much; a warning for each thing that could not be done."""
    try:
        for path in segments_of(folder)[:-2]:
            if path.suffix != PACKED:
                pack(path)
        drop_oldest(folder, limits.total_bytes)
    except OSError as error:
        yield f"segments in {folder} could not be packed or dropped: {error.strerror}"


def pack(path: Path) -> None:
    """Put a packed segment in the place of a plain one. A crash in the middle leaves both, or a draft: see `sweep`."""
    packed = path.with_name(path.name + PACKED)
    draft = packed.with_name(packed.name + _DRAFT)
    try:
        with path.open("rb") as plain, draft.open("wb") as file:
            zstandard.ZstdCompressor(level=3, write_checksum=True).copy_stream(plain, file)
            file.flush()
            make_durable(file.fileno())
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    draft.replace(packed)
    make_folder_durable(path.parent)
    path.unlink()


def drop_oldest(folder: Path, total_bytes: int) -> None:
    """Take the oldest segments away until the rest fits; the two newest always stay."""
    sizes = [(path, path.stat().st_size) for path in segments_of(folder)]
    over = sum(size for _, size in sizes) - total_bytes
    for path, size in sizes[:-2]:
        if over <= 0:
            return
        path.unlink()
        over -= size


def sweep(folder: Path) -> None:
    """What a crash in the middle of packing left: drafts, and packed ones whose plain one is still there."""
    for path in list(folder.iterdir()):
        is_draft = path.name.endswith(PACKED + _DRAFT)
        if is_draft or (path.suffix == PACKED and path.with_suffix("").exists()):
            path.unlink()
