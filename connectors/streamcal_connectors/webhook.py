"""``https:`` URLs: a webhook that gets every alarm at least once, however often its receiver or the run dies.

A commit hands the alarms to a thread, which posts them one after the other until each is answered with a
2xx status. What was not delivered yet is the sink's position: the store keeps it in the commit that raised
the alarm, and the next run goes on with it. So no receiver holds the run up, and a run that is killed loses
none. It may send one twice, with the same id.

A request is one CloudEvent (structured mode, JSON), whose id is also the header ``webhook-id``. With a
secret, it is signed as Standard Webhooks (https://www.standardwebhooks.com) has it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import logging
import os
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from threading import Condition, Thread
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from streamcal.run.ports import Position, Positions, SinkOptions
from streamcal.run.rows import AlarmRow
from streamcal_connectors.readers import read_position

SECRET: Final = "STREAMCAL_WEBHOOK_SECRET"  # noqa: S105  # its name
"""The environment variable of the secret: ``whsec_`` and its bytes in base64."""

_SECONDS: Final = 10.0  # for a request to connect, and to be answered
_FIRST, _LONGEST = 1.0, 300.0  # seconds from a failed request to the next; they double
_SETTLE: Final = 5.0  # seconds that the end of a run waits for a delivery
_TYPE: Final = "streamcal.alarm"
_PREFIX: Final = "whsec_"
_NAMESPACE: Final = uuid.UUID("6b9a3b7e-5f0e-4c56-9f0b-6d1f2f0c7a31")  # of the ids; any will do

log = logging.getLogger("streamcal_connectors")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: where it leads to was not named by the user, and a POST would become a GET."""


class WebhookConnector:
    """``http:`` and ``https:`` URLs: webhooks for alarms."""

    def sink(self, url: str, options: SinkOptions) -> WebhookSink:
        """Return a webhook; nothing is sent before an alarm is committed.

        Raises
        ------
        ValueError
            if it is to take anything but alarms, the URL has no host, or the secret has another form.
        """
        if options.rows != "alarms":
            raise ValueError(f"a webhook takes alarms only (--alarms), not {options.rows}")
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:  # asked for, a port that is none raises ValueError
            raise ValueError("a webhook needs a host, as in https://example.org/hook")
        return WebhookSink(url, _secret(os.environ.get(SECRET, "")))


class _Position(msgspec.Struct):
    waiting: dict[str, str]


class WebhookSink:
    """Posts alarms; see `streamcal.run.ports.OutboxSink`.

    Its name is the same for every URL: what was not delivered to the old receiver goes to the new one.
    """

    name = "webhook"

    def __init__(self, url: str, secret: bytes | None) -> None:
        parts = urlsplit(url)
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        self._host = parts.hostname
        self._secret = secret
        self._headers = {
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            "User-Agent": f"streamcal/{version('streamcal-engine')}",
        }
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(user).decode()}"
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._job = ""
        self._stored = False
        self._written: dict[str, str] = {}  # since the last commit: bodies by id
        self._waiting: dict[str, str] = {}  # committed, not delivered
        self._changed = Condition()  # guards what follows, and `_waiting`
        self._failures = 0  # since the last delivery
        self._settling = self._closed = False
        self._thread: Thread | None = None

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:
        """Go on with what was not delivered."""
        self._stored = job != ""
        self._job = job or uuid.uuid4().hex  # without a store, another run is another source of alarms
        self._hand_over({} if position is None else read_position(position, _Position, "a webhook").waiting)
        return None

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Hold alarms until the commit."""
        for row in rows:
            if isinstance(row, AlarmRow):
                event = _event(row, self._job)
                self._written[event["id"]] = msgspec.json.encode(event).decode()

    def commit(self, positions: Mapping[str, Positions]) -> Position:  # noqa: ARG002  # each alarm has an id
        """Hand the alarms to the thread that posts them; return those that wait."""
        waiting = self._hand_over(self._written)
        self._written = {}
        return waiting

    def drain(self) -> Position:
        """Try once more; wait until all is delivered or that has failed, for five seconds at most."""
        with self._changed:
            self._settling = True
            self._changed.notify_all()
            failures = self._failures
            self._changed.wait_for(lambda: not self._waiting or self._failures > failures, _SETTLE)
            if self._waiting:
                what = "the next run delivers them" if self._stored else "without --store, they are lost"
                log.warning("%s did not take %d of the alarms: %s", self._host, len(self._waiting), what)
            return {"waiting": dict(self._waiting)}

    def close(self) -> None:
        """Post nothing more; may be called twice. A request that is under way ends by itself."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _hand_over(self, alarms: Mapping[str, str]) -> Position:
        """Give alarms to the thread that posts them; return all that wait."""
        with self._changed:
            self._waiting |= alarms
            self._changed.notify_all()
            if self._waiting and self._thread is None:
                self._thread = Thread(target=self._post_all, name="webhook", daemon=True)
                self._thread.start()
            return {"waiting": dict(self._waiting)}

    def _post_all(self) -> None:
        """Post what waits, the oldest first; what was refused goes behind the others."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                last = self._settling
                id_, body = next(iter(self._waiting.items()))
            refused = self._post(id_, body.encode())
            with self._changed:
                del self._waiting[id_]
                self._changed.notify_all()
                if refused is None:
                    if self._failures:
                        log.info("%s takes alarms again", self._host)
                    self._failures = 0
                    continue
                self._waiting[id_] = body
                if not self._failures:
                    log.warning("%s did not take an alarm (%s): trying again", self._host, refused)
                pause = min(_FIRST * 2.0 ** min(self._failures, 30), _LONGEST)
                self._failures += 1
                if last:
                    return
                self._changed.wait_for(lambda: self._settling or self._closed, pause)

    def _post(self, id_: str, body: bytes) -> str | None:
        """Post an alarm; return None if it was delivered, and else what went wrong."""
        headers = {**self._headers, "webhook-id": id_}
        if self._secret is not None:
            headers["webhook-timestamp"] = moment = str(int(time.time()))
            signed = hmac.digest(self._secret, f"{id_}.{moment}.".encode() + body, hashlib.sha256)
            headers["webhook-signature"] = f"v1,{base64.b64encode(signed).decode()}"
        request = urllib.request.Request(self._url, body, headers, method="POST")  # noqa: S310  # http: or https:
        try:
            with self._opener.open(request, timeout=_SECONDS):
                return None
        except urllib.error.HTTPError as error:
            with error:
                return f"HTTP status {error.code}"
        except (OSError, ValueError, http.client.HTTPException) as error:
            return str(getattr(error, "reason", error)) or type(error).__name__


def _event(row: AlarmRow, job: str) -> dict[str, Any]:
    """Return an alarm as a CloudEvent; its id is that of the same alarm in every process."""
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": str(uuid.uuid5(_NAMESPACE, f"{job} {row.number} {row.key!r} {row.code}")),
        "source": f"urn:streamcal:{job}",
        "type": _TYPE,
        "datacontenttype": "application/json",
        "data": msgspec.to_builtins(row),
    }
    if row.key is not None:
        event["subject"] = row.key
    with suppress(ValueError, OverflowError, OSError, TypeError):  # no time, or one outside the calendar
        event["time"] = datetime.fromtimestamp(row.time, UTC).isoformat()  # type: ignore[arg-type]
    return event


def _secret(text: str) -> bytes | None:
    """Return the bytes of a secret; None if there is none."""
    if not text:
        return None
    made = b""
    with suppress(ValueError):
        made = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    if not text.startswith(_PREFIX) or len(made) < 24:
        raise ValueError(
            f"{SECRET} must be {_PREFIX} and at least 24 bytes in base64:"
            f" export {SECRET}={_PREFIX}$(openssl rand -base64 32)"
        )
    return made
