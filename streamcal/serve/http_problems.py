"""Problems that refuse a request, as in RFC 9457, with the field at fault."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from streamcal.events.codes import Code

PROBLEM_TYPE: Final = "application/problem+json"


class Fault(msgspec.Struct, frozen=True):
    """A field at fault."""

    pointer: str
    """JSON pointer into the event, as a fragment: ``#/score``."""
    detail: str
    """The value, and what is allowed."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request, or an event of it, was refused."""

    status: int
    detail: str
    title: str = ""
    type: str = "about:blank"
    id: str | None = None
    """Id of the event."""
    code: Code | None = None
    """Code of the event's reject: ``late_label``."""
    line: int | None = None
    """Line of the event in a batch, from 1."""
    errors: tuple[Fault, ...] = ()
    retry_after: int | None = None
    """Seconds after which the same request may be answered; it is also a header."""

    def __post_init__(self) -> None:
        if not self.title:
            msgspec.structs.force_setattr(self, "title", HTTPStatus(self.status).phrase)


class RefusedError(Exception):
    """A request is refused as a whole."""

    def __init__(
        self, status: int, detail: str, *, pointer: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(detail)
        errors = () if pointer is None else (Fault(pointer, detail),)
        self.problem = Problem(status, detail, errors=errors, retry_after=retry_after)
