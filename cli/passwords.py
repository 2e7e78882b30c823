"""Where passwords come from: a file, the environment or a prompt; never from what `ps` shows unless
the user wrote it there. None is ever echoed or told."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path

from kbroker.environment import PASSWORD as VARIABLE
from kbroker.errors import OperatorError

__all__ = ["password_of", "secret_value", "split_user"]


def split_user(text: str) -> tuple[str, str | None]:
    """NAME or NAME:PASSWORD. Raises OperatorError."""
    name, colon, password = text.partition(":")
    if not name or (colon and not password):
        raise OperatorError(f"--user {name}: write NAME:PASSWORD, or NAME alone to be asked")
    return name, password if colon else None


def password_of(user: str, file: str | Path | None = None, *, twice: bool = True) -> str:
    """The first that there is: the first line of `file` (-: standard input), $KBROKER_PASSWORD,
    what is typed where there is a terminal. Raises OperatorError."""
    if file is not None:
        return _checked(_first_line(file), str(file))
    if VARIABLE in os.environ:
        return _checked(os.environ[VARIABLE], f"${VARIABLE}")
    if not sys.stdin.isatty():
        raise OperatorError(
            f"no password for {user}: there is no terminal to ask; give --password-file or set "
            f"{VARIABLE}"
        )
    password = _checked(getpass.getpass(f"Password of {user}: "), "what was typed")
    if twice and getpass.getpass("Once more: ") != password:
        raise OperatorError("the two passwords differ; nothing was done")
    return password


def secret_value(setting: str, file: str | Path | None = None) -> str:
    """All of `file` (-: standard input), as a key is of several lines, else what is typed. Raises
    OperatorError."""
    if file is not None:
        text = sys.stdin.read() if str(file) == "-" else Path(file).read_text()
        return _checked(text.strip(), str(file))
    if not sys.stdin.isatty():
        raise OperatorError(
            f"no value for {setting}: there is no terminal to ask; give --password-file"
        )
    return _checked(getpass.getpass(f"{setting}: "), "what was typed")


def _first_line(file: str | Path) -> str:
    text = sys.stdin.readline() if str(file) == "-" else Path(file).read_text().partition("\n")[0]
    return text.rstrip("\r\n")


def _checked(password: str, where: str) -> str:
    if not password:
        raise OperatorError(f"the password is empty: {where}")
    if "\0" in password:
        raise OperatorError(f"a password has no NUL: {where}")
    return password
