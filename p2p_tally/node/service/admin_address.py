"""Where an admin address is and who may ask there: HOST:PORT or a unix socket, and a token. For both sides."""

import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from p2p_tally.config import DaemonSettings
from p2p_tally.errors import ConfigError
from p2p_tally.node.links.addresses import Address, parse_address

UNIX = "unix:"

# A shorter token could be guessed.
LEAST_TOKEN = 16


@dataclass(frozen=True)
class SocketFile:
    """A unix socket, which only its owner can open."""

    path: Path
    loopback = True

    def __str__(self) -> str:
        return f"{UNIX}{self.path}"

    def bind(self) -> socket.socket:
        """A socket that does not listen yet: so nobody can connect before the file has its mode."""
        _remove_dead(self.path)
        bound = socket.socket(socket.AF_UNIX)
        try:
            bound.bind(str(self.path))
            self.path.chmod(0o600)
        except OSError:
            bound.close()
            raise
        return bound


def _remove_dead(path: Path) -> None:
    """Remove the socket of a process that was killed. One that answers stays, and is an error when it is bound."""
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as tried:
            try:
                tried.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()


def parse_admin(text: str, flag: str) -> Address | SocketFile:
    if text.startswith(UNIX):
        if not text.removeprefix(UNIX):
            raise ConfigError(f"{flag} {text}: accepted is HOST:PORT or unix:/PATH")
        return SocketFile(Path(text.removeprefix(UNIX)))
    return parse_address(text, flag)


def read_token(path: Path) -> str:
    """The token in a file, which others must not be able to read."""
    try:
        with path.open(encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read().strip()
    except OSError as error:
        raise ConfigError(f"--admin-token-file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if mode & stat.S_IRWXO:
        raise ConfigError(f"--admin-token-file {path}: everybody on this machine can read it; chmod 600 it")
    if len(token) < LEAST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(
            f"--admin-token-file {path}: accepted is one line of at least {LEAST_TOKEN} plain characters; "
            f"openssl rand -hex 32 > {path} makes one"
        )
    return token


def admin_of(settings: DaemonSettings) -> tuple[Address | SocketFile, str | None]:
    """Where to serve, and the token that is asked for."""
    address = parse_admin(settings.admin or "", "--admin")
    token = None if settings.admin_token_file is None else read_token(settings.admin_token_file)
    missing = [] if token else ["--admin-token-file FILE"]
    missing += [] if settings.insecure else ["--insecure, for the token itself travels in plain text"]
    if not address.loopback and missing:
        raise ConfigError(
            f"--admin {address}: reachable from other machines; accepted is 127.0.0.1 or unix:/PATH, "
            f"or besides {' and '.join(missing)}"
        )
    return address, token


# --- the side that asks


def session_to(address: str, token: str | None, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
    """For requests to `base_url(address)`."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connector = aiohttp.UnixConnector(address.removeprefix(UNIX)) if address.startswith(UNIX) else None
    return aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout)


def base_url(address: str) -> str:
    if address.startswith(UNIX):
        return "http://localhost"
    return (address if "://" in address else f"http://{address}").rstrip("/")


def check_answer(answer: aiohttp.ClientResponse) -> None:
    if answer.status == 401:
        raise aiohttp.ClientError("it asks for a token: --admin-token-file FILE")
    answer.raise_for_status()
