"""A metadata image as JSON-ready rows, one kind after the other, and as one document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from formats.kafka.internal_records import plain
from formats.kafka.messages import Values
from rmqctl.kafka.state.metadata import MetadataImage

_ACL_RESOURCES = {2: "topic", 3: "group", 4: "cluster", 5: "transactional-id", 6: "delegation-token", 7: "user"}
_ACL_PATTERNS = {3: "literal", 4: "prefixed"}
_ACL_OPERATIONS = {
    2: "all", 3: "read", 4: "write", 5: "create", 6: "delete", 7: "alter", 8: "describe", 9: "cluster-action",
    10: "describe-configs", 11: "alter-configs", 12: "idempotent-write", 13: "create-tokens", 14: "describe-tokens",
    15: "two-phase-commit",
}  # fmt: skip
_ACL_PERMISSIONS = {2: "deny", 3: "allow"}
_SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_RECOVERY = {0: "recovered", 1: "recovering"}
_ZK_MIGRATION = {0: "none", 1: "migration", 2: "pre-migration", 3: "post-migration"}


def image_rows(image: MetadataImage) -> Iterator[dict[str, Any]]:
    """Every part of the image: first the image itself, then a row each of what it holds."""
    yield {"kind": "metadata_image", **_head(image)}
    for kind, rows in _parts(image).items():
        for row in rows:
            yield {"kind": _SINGULAR[kind], **row}
    for problem in image.problems:
        yield {"kind": "problem", "file": problem.file, "offset": problem.offset, "message": problem.message}


def image_document(image: MetadataImage) -> dict[str, Any]:
    """Return the image as one object: a list for each kind of thing."""
    document = {**_head(image), **_parts(image)}
    document["problems"] = [problem._asdict() for problem in image.problems]
    return document


PARTS: dict[str, tuple[str, ...]] = {
    "features": ("name", "level"),
    "voters": ("node_id", "directory_id", "endpoints"),
    "controllers": ("node_id", "endpoints"),
    "brokers": ("node_id", "broker_epoch", "fenced", "in_controlled_shutdown", "rack", "endpoints"),
    "topics": ("topic", "topic_id", "partitions"),
    "partitions": ("topic", "partition", "leader", "leader_epoch", "replicas", "isr"),
    "configs": ("resource", "name", "key", "value"),
    "acls": ("principal", "host", "operation", "permission", "resource_type", "resource_name", "pattern_type"),
    "quotas": ("entity", "key", "value"),
    "scram_credentials": ("user", "mechanism", "iterations"),
    "delegation_tokens": ("token_id", "owner", "expiration_timestamp"),
}
"""Parts of an image in the order shown, with the columns that fit a terminal."""

HEADER = """
    kind offset epoch timestamp snapshot leader kraft_version next_producer_id zk_migration_state
    unfinished_transaction name level node_id directory_id endpoints incarnation_id features broker_epoch fenced
    in_controlled_shutdown rack directory_ids cordoned_directory_ids topic topic_id partitions partition leader_epoch
    partition_epoch replicas isr adding_replicas removing_replicas eligible_leader_replicas last_known_elr
    leader_recovery_state resource key value id resource_type resource_name pattern_type principal host operation
    permission entity user mechanism iterations token_id owner requester renewers issue_timestamp max_timestamp
    expiration_timestamp file message
"""
"""Every key that a row of an image may have, in order."""

_SINGULAR = {
    "features": "feature",
    "voters": "voter",
    "controllers": "controller",
    "brokers": "broker",
    "topics": "topic",
    "partitions": "partition",
    "configs": "config",
    "acls": "acl",
    "quotas": "quota",
    "scram_credentials": "scram_credential",
    "delegation_tokens": "delegation_token",
}


def _head(image: MetadataImage) -> dict[str, Any]:
    zk = image.zk_migration_state
    return {
        "offset": image.offset,
        "epoch": image.epoch,
        "timestamp": image.timestamp,
        "snapshot": image.snapshot,
        "leader": image.leader,
        "kraft_version": image.kraft_version,
        "next_producer_id": image.next_producer_id,
        "zk_migration_state": None if zk is None else _ZK_MIGRATION.get(zk, str(zk)),
        "unfinished_transaction": None if image.in_transaction is None else len(image.in_transaction),
    }


def _parts(image: MetadataImage) -> dict[str, list[dict[str, Any]]]:
    return {
        "features": [{"name": name, "level": level} for name, level in sorted(image.features.items())],
        "voters": [_voter(voter) for voter in image.voters],
        "controllers": [_controller(node) for _, node in sorted(image.controllers.items())],
        "brokers": [_broker(broker) for _, broker in sorted(image.brokers.items())],
        "topics": [
            {"topic": name, "topic_id": topic_id, "partitions": len(image.partitions_of(name))}
            for name, topic_id in sorted(image.topics.items())
        ],
        "partitions": list(_partitions(image)),
        "configs": [
            {"resource": kind, "name": name, "key": key, "value": value}
            for (kind, name), settings in sorted(image.configs.items())
            for key, value in sorted(settings.items())
        ],
        "acls": [_acl(acl) for _, acl in sorted(image.acls.items())],
        "quotas": [
            {"entity": dict(entity), "key": key, "value": value}
            for entity, quotas in image.quotas.items()
            for key, value in sorted(quotas.items())
        ],
        "scram_credentials": [
            {"user": user, "mechanism": _SCRAM.get(number, str(number)), "iterations": value["iterations"]}
            for (user, number), value in sorted(image.scram.items())
        ],
        "delegation_tokens": [_token(token) for _, token in sorted(image.tokens.items())],
    }


def _voter(voter: Values) -> dict[str, Any]:
    feature = voter["kRaftVersionFeature"]
    return {
        "node_id": voter["voterId"],
        "directory_id": voter["voterDirectoryId"],
        "endpoints": [_endpoint(end) for end in voter["endpoints"] or ()],
        "kraft_version": [feature["minSupportedVersion"], feature["maxSupportedVersion"]],
    }


def _endpoint(end: Values) -> str:
    return f"{end['name']}://{end['host']}:{end['port']}"


def _features(node: Values) -> dict[str, list[int]]:
    return {f["name"]: [f["minSupportedVersion"], f["maxSupportedVersion"]] for f in node["features"] or ()}


def _controller(node: Values) -> dict[str, Any]:
    return {
        "node_id": node["controllerId"],
        "incarnation_id": node["incarnationId"],
        "endpoints": [_endpoint(end) for end in node["endPoints"] or ()],
        "features": _features(node),
    }


def _broker(broker: Values) -> dict[str, Any]:
    return {
        "node_id": broker["brokerId"],
        "broker_epoch": broker["brokerEpoch"],
        "incarnation_id": broker["incarnationId"],
        "fenced": broker["fenced"],
        "in_controlled_shutdown": broker.get("inControlledShutdown", False),
        "rack": broker["rack"],
        "endpoints": [_endpoint(end) for end in broker["endPoints"] or ()],
        "features": _features(broker),
        "directory_ids": broker.get("logDirs") or [],
        "cordoned_directory_ids": broker.get("cordonedLogDirs") or [],
    }


def _partitions(image: MetadataImage) -> Iterator[dict[str, Any]]:
    for name, topic_id in sorted(image.topics.items()):
        for number, values in image.partitions_of(name).items():
            yield {
                "topic": name,
                "partition": number,
                "topic_id": topic_id,
                "leader": values["leader"],
                "leader_epoch": values["leaderEpoch"],
                "partition_epoch": values["partitionEpoch"],
                "replicas": values["replicas"] or [],
                "isr": values["isr"] or [],
                "adding_replicas": values["addingReplicas"] or [],
                "removing_replicas": values["removingReplicas"] or [],
                "eligible_leader_replicas": values.get("eligibleLeaderReplicas") or [],
                "last_known_elr": values.get("lastKnownElr") or [],
                "directory_ids": values.get("directories") or [],
                "leader_recovery_state": _RECOVERY.get(values.get("leaderRecoveryState", 0), "unknown"),
            }


def _acl(acl: Values) -> dict[str, Any]:
    return {
        "id": acl["id"],
        "resource_type": _ACL_RESOURCES.get(acl["resourceType"], str(acl["resourceType"])),
        "resource_name": acl["resourceName"],
        "pattern_type": _ACL_PATTERNS.get(acl["patternType"], str(acl["patternType"])),
        "principal": acl["principal"],
        "host": acl["host"],
        "operation": _ACL_OPERATIONS.get(acl["operation"], str(acl["operation"])),
        "permission": _ACL_PERMISSIONS.get(acl["permissionType"], str(acl["permissionType"])),
    }


def _token(token: Values) -> dict[str, Any]:
    names = ("owner", "requester", "renewers", "issueTimestamp", "maxTimestamp", "expirationTimestamp")
    keys = ("owner", "requester", "renewers", "issue_timestamp", "max_timestamp", "expiration_timestamp")
    return {"token_id": token["tokenId"], **{key: plain(token[name]) for key, name in zip(keys, names, strict=True)}}
