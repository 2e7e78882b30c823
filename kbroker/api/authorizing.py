"""The authorizer over the metadata image: made at the start, changed by CreateAcls and DeleteAcls.

An ACL is kept by what it says; the image keeps it by the id of its record. Two records that say the
same, which Apache Kafka does not write, count once and go together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.config import BrokerConfig
from kbroker.metadata.image import Image
from kbroker.metadata.records.access import AccessControlEntryRecord
from kbroker.security.acls import Acl, Authorizer
from kbroker.security.principals import parse_super_users

if TYPE_CHECKING:
    from kbroker.api.context import Services

NAME: Final = "authorizer.class.name"


def authorizer_of(config: BrokerConfig, image: Image) -> Authorizer | None:
    """Who may do what, by settings and metadata; None: everybody everything."""
    if not config.string(NAME):
        return None
    authorizer = Authorizer(
        parse_super_users(config.string("super.users")),
        allow_if_none=config.flag("allow.everyone.if.no.acl.found"),
    )
    for record in image.acls.values():
        authorizer.add(acl_of(record))
    return authorizer


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """What a record says."""
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def record_of(acl: Acl, record_id: bytes) -> AccessControlEntryRecord:
    """An ACL as the metadata log has it."""
    return AccessControlEntryRecord(record_id, *acl)


def tell_data_plane(services: Services) -> None:
    """What it remembers of verdicts is not to be asked any more. Before an answer tells that ACLs
    have changed."""
    authorizer = services.authorizer
    services.data_plane.rights_changed(0 if authorizer is None else version_of(authorizer))


def version_of(authorizer: Authorizer) -> int:
    """The version of its ACLs as the data plane counts: from 1."""
    return authorizer.version + 1
