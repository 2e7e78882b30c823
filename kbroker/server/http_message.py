"""HTTP/1 messages: request heads and responses. Requests have no bodies."""

from __future__ import annotations

from typing import Final, NamedTuple

HEAD_END: Final = b"\r\n\r\n"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_TEXT: Final = "text/plain; charset=utf-8"


class Request(NamedTuple):
    """The path without its query, and the headers by lower-case name."""

    method: str
    path: str
    headers: dict[str, str]
    keep: bool


class Page(NamedTuple):
    """The content of a response."""

    status: int
    body: bytes
    content_type: str = _TEXT


def text_page(text: str, status: int = 200) -> Page:
    """Make a page of one line of text."""
    return Page(status, f"{text}\n".encode())


def parse_head(head: bytes) -> Request | Page:
    """Parse a request; return the error page for other bytes."""
    text, end, rest = head.decode("latin-1").partition("\r\n\r\n")
    if not end:
        return text_page("the request headers are too long", 431)
    first, *lines = text.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[1][:1] != "/" or not words[2].startswith("HTTP/1."):
        return text_page("the request line is not of the form GET /PATH HTTP/1.1", 400)
    method, target, version = words
    if method not in ("GET", "HEAD"):
        return text_page("the method is not supported; use GET or HEAD", 405)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return text_page("a header is not of the form NAME: VALUE", 400)
        name = name.lower()
        headers[name] = f"{headers[name]},{value.strip()}" if name in headers else value.strip()
    options = headers.get("connection", "").lower()
    keep = "close" not in options if version == "HTTP/1.1" else "keep-alive" in options
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    keep = keep and not has_body and not rest
    return Request(method, target.partition("?")[0], headers, keep)


def response(page: Page, *, keep: bool, with_body: bool) -> bytes:
    """Make the bytes of a response; `keep` leaves the connection open after it."""
    lines = [
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Cache-Control: no-store",
        f"Connection: {'keep-alive' if keep else 'close'}",
    ]
    if page.status == 405:
        lines.append("Allow: GET, HEAD")
    head = "\r\n".join(lines).encode() + HEAD_END
    return head + page.body if with_body else head
