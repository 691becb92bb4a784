"""Elements of HTML as text: whatever is not markup already is escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence

__all__ = ["Markup", "data_table", "escaped", "tag"]


class Markup(str):
    """Text that is markup: it goes into a page as it stands."""

    __slots__ = ()


def escaped(value: object) -> Markup:
    """Return a value as text of a page; markup as it is.

    A character that a page may not have, or that would turn the text around it, is shown as its escape.

    Examples
    --------
    >>> str(escaped("<b> & 'c'"))
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    if isinstance(value, Markup):
        return value
    text = "".join(
        each if each.isprintable() or each in " \n\u00a0" else ascii(each)[1:-1] for each in str(value)
    )
    return Markup(html.escape(text))


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element.

    Parameters
    ----------
    children
        its content; None is left out.
    attributes
        ``class_`` stands for ``class``, ``_`` within a name for ``-``; None is left out.

    Examples
    --------
    >>> str(tag("p", "1 < 2", tag("b", "!"), class_="x", data_y=3))
    '<p class="x" data-y="3">1 &lt; 2<b>!</b></p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(escaped(child) for child in children if child is not None)
    return Markup(f"<{name}{given}>{inner}</{name}>")


def data_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, kind: str | None = None
) -> Markup:
    """Return a table; the first column names the row."""
    head = tag("tr", *(tag("th", name, scope="col") for name in columns))
    body = [
        tag("tr", tag("th", first, scope="row"), *(tag("td", value) for value in rest))
        for first, *rest in rows
    ]
    table = tag("table", tag("thead", head), tag("tbody", *body), class_=kind)
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=", ".join(columns))
