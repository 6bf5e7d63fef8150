"""Serves a page over HTTP: `/` is the document and `/events` its stream. And who may ask: see `guard`."""

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from p2p_tally.page.document import document
from p2p_tally.page.hub import Hub

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# What every answer says: take the type as it is given, tell no other site where you came from.
HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


# Told why a request is refused.
OnRefusal = Callable[[str], None]


def guard(loopback: bool, token: str | None, without_token: Collection[str], on_refusal: OnRefusal) -> Middleware:
    """Refuse what a page of another site asks for through the user's browser. `loopback`: only this machine is served.

    Such a page can give a name of its own this machine's address (DNS rebinding) and read what only this machine
    should. So at a loopback address only that address and localhost are answered. And a browser says in `Origin` and
    `Sec-Fetch-Site` which site asks: another one than the page's own is refused. It may only link to the page.

    `token`: what every request must carry, but for the paths `without_token`. No page of another site knows it.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if loopback and not _is_loopback(request.host):
            return refuse(403, "the Host header names another machine")
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != request.host:
            return refuse(403, "the Origin header names another site")
        if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site") and request.path != "/":
            return refuse(403, "asked for by another site")
        if token is not None and request.path not in without_token and not _carries(request, token):
            return refuse(401, "without the right token")
        return await handler(request)

    def refuse(status: int, why: str) -> web.Response:
        on_refusal(why)
        return web.Response(
            status=status, text=f"{why}\n", headers={"WWW-Authenticate": "Bearer"} if status == 401 else {}
        )

    return check


def _carries(request: web.Request, token: str) -> bool:
    sent = request.headers.get("Authorization", "").encode(errors="replace")
    return hmac.compare_digest(sent, f"Bearer {token}".encode())


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


def make_site(
    loopback: bool,
    token: str | None = None,
    without_token: Collection[str] = (),
    on_refusal: OnRefusal = lambda _: None,
) -> web.Application:
    """An application that checks who asks (see `guard`). It serves nothing yet."""
    app = web.Application(middlewares=[guard(loopback, token, without_token, on_refusal)])
    app.on_response_prepare.append(_add_headers)
    return app


def add_page(app: web.Application, hub: Hub) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(body=document().body, headers=document().headers)

    app.router.add_get("/", page)
    app.router.add_get("/events", hub.stream, allow_head=False)
