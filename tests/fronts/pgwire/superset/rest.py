"""Superset's REST API, logged in as its own pages are."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.cookiejar import CookieJar
from typing import Any


@dataclass
class Api:
    """``call`` gives the status and the document that came back."""

    address: str
    _headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # No proxy of the environment: Superset is on this machine.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar())
        )

    def login(self, name: str, password: str) -> None:
        given = {"username": name, "password": password, "provider": "db"}
        status, found = self.call("POST", "security/login", given)
        if status != 200:
            raise RuntimeError(f"Superset lets its admin not in: {status} {found}")
        self._headers["Authorization"] = f"Bearer {found['access_token']}"
        # A change wants this token beside the cookie that came with it.
        self._headers["X-CSRFToken"] = self.call("GET", "security/csrf_token/")[1]["result"]
        self._headers["Referer"] = self.address

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        kind = {} if body is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self.address}/api/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={**self._headers, **kind},
        )
        try:
            with self._opener.open(request, timeout=300) as came:
                status, text = came.status, came.read().decode()
        except urllib.error.HTTPError as problem:
            status, text = problem.code, problem.read().decode()
        except OSError as problem:
            raise RuntimeError(f"Superset does not answer {method} {path}: {problem}") from None
        try:
            found = json.loads(text)
        except ValueError:
            found = {"message": text[:2000]}
        return status, found if isinstance(found, dict) else {"result": found}
