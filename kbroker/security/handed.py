"""What `kbroker start` hands to the broker and nobody else is to read: it is no argument, which
`ps` shows, nor in the environment that a process begins with, which stays in /proc.

In variables that the broker takes away when it has read them: START_SETTINGS, a list in JSON of
KEY=VALUE, of the settings that are passwords; START_USERS, the users of --user, hashed, a list of
[name, mechanism's number, salt, stored key, server key, iterations], hex bytes. Nobody can log in
with these, but whoever reads them can try passwords. In the foreground both are set in the process
itself; a broker of its own process gets them in a file without a name, open at START_FILE's number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping

from kbroker.environment import START_FILE, START_SETTINGS, START_USERS
from kbroker.errors import OperatorError
from kbroker.metadata.records.access import UserScramCredentialRecord
from kbroker.security.scram import MECHANISMS, credential_of


def handed(passwords: Mapping[str, str]) -> str:
    """The variable's value, from passwords by user."""
    rows = []
    for name, password in passwords.items():
        for mechanism in MECHANISMS.values():
            salt, stored, server, iterations = credential_of(mechanism, password)
            keys = [salt.hex(), stored.hex(), server.hex()]
            rows.append([name, mechanism.number, *keys, iterations])
    return json.dumps(rows)


def taken(environment: MutableMapping[str, str]) -> list[UserScramCredentialRecord]:
    """The records, and the variable gone. Raises OperatorError."""
    try:
        return [
            UserScramCredentialRecord(
                name,
                number,
                bytes.fromhex(salt),
                bytes.fromhex(stored),
                bytes.fromhex(server),
                iterations,
            )
            for name, number, salt, stored, server, iterations in json.loads(
                environment.pop(START_USERS, "[]")
            )
        ]
    except (TypeError, ValueError):
        raise OperatorError(f"{START_USERS} is not what `kbroker start --user` makes") from None


def file_of(variables: Mapping[str, str]) -> int:
    """A file in memory, open, that `take_file` puts into the environment of who inherits it."""
    number = os.memfd_create("kbroker-start")
    os.write(number, json.dumps(dict(variables)).encode())
    os.lseek(number, 0, os.SEEK_SET)
    return number


def take_file(environment: MutableMapping[str, str]) -> None:
    """Puts what was handed over in a file where the other functions look, and closes it. Raises
    OperatorError."""
    if START_FILE not in environment:
        return
    try:
        with os.fdopen(int(environment.pop(START_FILE)), "rb") as file:
            environment.update(json.load(file))
    except (OSError, TypeError, ValueError):
        raise OperatorError(f"{START_FILE} is not what `kbroker start` hands over") from None


def taken_settings(environment: MutableMapping[str, str]) -> list[str]:
    """KEY=VALUE of the settings that are passwords, and the variable gone. Raises OperatorError."""
    try:
        found: list[str] = json.loads(environment.pop(START_SETTINGS, "[]"))
    except ValueError:
        raise OperatorError(f"{START_SETTINGS} is not what `kbroker start` hands over") from None
    return found
