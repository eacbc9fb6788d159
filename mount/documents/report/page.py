"""Renders a report as one page of HTML that needs nothing else, and no network.

Text and tables are in the page itself, escaped by Jinja2; a script sorts the tables and draws the
charts with Plotly, which is compressed inside the page. A policy in the page forbids every other
script and every request, so that not even a hostile name could start one.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

from kafkafs.storage import LogDirsReport

from . import charts, tables, texts
from .highlights import highlights

#: The sections of the page by their ids, in order.
SECTIONS: Final = {
    "summary": "Summary",
    "growth": "Growth",
    "skew": "Skew",
    "segments": "Segments",
    "compression": "Compression",
    "groups": "Groups",
    "transactions": "Transactions",
    "time": "Time",
    "damage": "Damage",
    "settings": "Configs",
}
# Only the two scripts of the page run, and nothing is loaded.
_POLICY: Final = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'"
)


def page(report: LogDirsReport) -> bytes:
    """Returns the page. Raises ImportError if what it needs is not installed."""
    from jinja2 import Environment, StrictUndefined

    here = files(__package__)
    script = here.joinpath("page.js").read_text(encoding="utf-8")
    packed, hash_of_plotly = _plotly()
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters.update(time=texts.time, shown=texts.shown)
    template = environment.from_string(here.joinpath("page.html").read_text(encoding="utf-8"))
    text = template.render(
        report=report,
        highlights=highlights(report),
        tiles=_tiles(report),
        tables=tables,
        style=here.joinpath("page.css").read_text(encoding="utf-8"),
        script=script,
        data=script_json(charts.chart_data(report)),
        plotly=packed,
        sections=SECTIONS.items(),
        policy=_POLICY.format(scripts=f"{_hash(script)} {hash_of_plotly}"),
    )
    return text.encode("utf-8", "backslashreplace")


def script_json(value: Any) -> str:
    """Returns JSON that can be put into a script element: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _plotly() -> tuple[str, str]:
    """Returns Plotly's script, compressed, in base64, and the hash that lets it run."""
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    packed = gzip.compress(source.encode(), mtime=0)
    return base64.b64encode(packed).decode(), _hash(source)


def _hash(script: str) -> str:
    """Returns the source expression of a Content-Security-Policy that allows a script."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _tiles(report: LogDirsReport) -> list[tuple[str, str]]:
    """Returns the figures at the head of the page, each with its name."""
    partitions = report.partitions
    records = sum(each.records for each in partitions)
    return [
        (texts.size(sum(each.size for each in partitions)), "in segments"),
        (texts.number(len(report.topics)), "topics"),
        (texts.number(len(partitions)), "partitions"),
        (texts.number(sum(len(each.segments) for each in partitions)), "segments"),
        (texts.number(records), "records" if report.is_deep else "offsets"),
    ]
