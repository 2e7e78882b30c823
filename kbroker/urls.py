"""Addresses of HTTP servers that may hold a user and a password."""

from __future__ import annotations

import urllib.parse

__all__ = ["shown_url", "split_credentials"]


def split_credentials(url: str) -> tuple[str, str]:
    """Return an address without `USER:PASSWORD@`, and that text, decoded; "" where there is none.
    Raises ValueError for what is no address, with no part of it in the text."""
    try:
        parts = urllib.parse.urlsplit(url)
        who, _, where = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=where)
        parts.port  # noqa: B018  raises where a password has a slash that is not encoded
    except ValueError:
        raise ValueError("not an address: write http(s)://HOST:PORT/PATH") from None
    return parts.geturl(), urllib.parse.unquote(who)


def shown_url(url: str) -> str:
    """Return an address for logs and errors: without user, password, query and fragment, where
    secrets may be."""
    try:
        parts = urllib.parse.urlsplit(split_credentials(url)[0])
    except ValueError:
        return "[hidden]"
    return parts._replace(query="", fragment="").geturl()
