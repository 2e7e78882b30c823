"""Users that `kbroker start --user` makes: hashed there, handed to the broker in its environment.

A list in JSON of [name, mechanism's number, salt, stored key, server key, iterations], hex bytes.
Nobody can log in with what stands there, but whoever reads it can try passwords: it is as secret as
the metadata log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping

from kbroker.environment import START_USERS
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
