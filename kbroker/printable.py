"""Text of somebody else's making, as it may stand in one line of a log or on a terminal."""

from __future__ import annotations


def escaped(text: str) -> str:
    """What cannot be printed (line ends, what steers a terminal) as Python escapes it."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def host_port(host: str, port: int) -> str:
    """An address as text: an IPv6 host stands in brackets (RFC 3986)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def escaped_json(text: str) -> str:
    """JSON with the same values in which nothing but line ends cannot be printed."""
    return "\n".join(
        line if line.isprintable() else "".join(map(_json_char, line)) for line in text.split("\n")
    )


def _json_char(char: str) -> str:
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def one_line(text: str, most_chars: int) -> str:
    """What cannot be printed as Python escapes it; the end of a long text cut off."""
    if len(text) > most_chars:
        text = f"{text[:most_chars]}... ({len(text)} characters)"
    return escaped(text)
