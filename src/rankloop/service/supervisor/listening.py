"""Taking the port, before anything is started or said."""

from __future__ import annotations

import errno
import os
import socket

from rankloop.core.errors import InvalidParameter
from rankloop.service.settings import Settings


def taken(settings: Settings) -> list[socket.socket]:
    """A socket for each address of the host, bound but not listening; what cannot be had is refused in words."""
    host, port = settings.host, settings.port
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidParameter(f"host is {host!r}, which no address is known of ({error.strerror})") from None
    found: list[socket.socket] = []
    for family, kind, protocol, _, address in dict.fromkeys(addresses):
        made = socket.socket(family, kind, protocol)
        if os.name == "posix":  # elsewhere it would let two programs have the port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            made.bind(address)
        except OSError as error:
            made.close()
            if error.errno == errno.EADDRNOTAVAIL and len(addresses) > 1:
                continue  # a name of two addresses, on a machine that has one of them
            for other in found:
                other.close()
            raise InvalidParameter(_remedy(error, host, port)) from None
        found.append(made)
        if port == 0:
            break  # the next address would get another one
    if not found:
        raise InvalidParameter(f"host is {host!r}, and none of its addresses is one of this machine")
    return found


def url(settings: Settings, sockets: list[socket.socket]) -> str:
    """Where it can be reached."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{sockets[0].getsockname()[1]}"


def _remedy(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken by another program; stop it, or give another port with --port"
    if error.errno == errno.EACCES:
        return f"port {port} is only for those with more rights; give one of 1024 or more with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"host is {host}, which is no address of this machine; give one that is, or 0.0.0.0 for all"
    return f"{host}:{port} cannot be listened on: {error.strerror}; give others with --host and --port"
