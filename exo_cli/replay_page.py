"""A page of lanes for a browser: one file that asks nothing of any network, and in which only its own script runs.

What comes from a log stands in it as data alone: the script reads it as JSON, and makes text and attributes of it. The
policy in the page's head names the script and the style by their hashes, so nothing else would run if it got in.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Final, cast

from exo_cli.console import visible
from exo_cli.replay_lanes import Stretch, drawn_findings, stretches
from exo_cli.views import Item

MARK: Final = b"<!doctype html><!-- a page of exo replay -->"


def page(name: str, lanes: Item, findings: Sequence[Item]) -> str:
    """The page, in ASCII. `name` is what the log is called."""
    style, script = _part("replay.css"), _part("replay.js")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    title = html.escape(visible(name)).encode("ascii", "xmlcharrefreplace").decode()
    told = _json(_harmless(_data(lanes, findings)))
    return Template(_part("replay.html")).substitute(policy=policy, title=title, style=style, script=script, data=told)


def _part(name: str) -> str:
    return (files("exo_cli") / "pages" / name).read_text(encoding="ascii")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(lanes: Item, findings: Sequence[Item]) -> dict[str, object]:
    drawn = drawn_findings(lanes, findings)
    plain = ("kind", "id", "since_index", "until_index", "why", "remedy")
    return {
        **{key: lanes[key] for key in ("first_index", "last_index", "first_at", "last_at", "left_out")},
        "lanes": [
            {
                **{key: lane[key] for key in ("sort", "id", "of", "refused")},
                "stretches": [_stretch(each) for each in stretches(lanes, lane)],
            }
            for lane in lanes["lanes"]
        ],
        "findings": [{key: each[key] for key in plain} for each in drawn],
        "elsewhere": len(findings) - len(drawn),
    }


def _stretch(stretch: Stretch) -> dict[str, object]:
    span = {key: stretch.span[key] for key in ("status", "from_index", "to_index", "from_at", "to_at", "row", "error")}
    return {"begin": stretch.begin, "end": stretch.end, "stale": stretch.stale, **span}


def _harmless(value: object) -> object:
    """What a person would be misled by is written out, as on a terminal: marks that turn text round, or hide."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {key: _harmless(each) for key, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_harmless(each) for each in cast("Sequence[object]", value)]
    return value


def _json(value: object) -> str:
    """JSON in ASCII (so U+2028 and U+2029 are escaped) that holds nothing which could end or open an element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
