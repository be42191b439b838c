"""A cluster of one node, written without a broker: read back, and held to what real brokers formatted."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.errors import Refused
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory, read_directory
from rmqctl.kafka.directory.file_names import BOOTSTRAP
from rmqctl.kafka.engine.cluster_files import (
    METADATA_VERSION,
    Cluster,
    ClusterTopic,
    features_of,
    new_id,
    write_cluster,
)
from rmqctl.kafka.state.metadata import MetadataImage, image_of_snapshot, metadata_image
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.opening import open_store
from rmqctl.release import Release

CLUSTER_ID = "AbCdEfGhQxSTU-V_wXyZ01"


def bootstrap(directory: LogDirectory) -> MetadataImage:
    return image_of_snapshot(next(file for file in directory.files if file.name == BOOTSTRAP))


def image(root: Path) -> MetadataImage:
    log = Replicas(LogDirectories([read_directory(LocalTree(str(root)))])).metadata_log
    assert log is not None
    return metadata_image(log)


@pytest.mark.parametrize("release", [Release(3, 3, 0), Release(3, 9, 2), Release(4, 3, 1)], ids=str)
def test_written_cluster_is_read_back(release: Release, tmp_path: Path) -> None:
    topics = [
        ClusterTopic("a", new_id(), {0: 3, 1: -1}, {"cleanup.policy": "compact"}),
        ClusterTopic("b-c", new_id(), dict.fromkeys(range(600), 0)),
    ]
    cluster = Cluster(CLUSTER_ID, 7, release, topics, first_producer_id=4001)
    write_cluster(tmp_path, cluster)
    found = image(tmp_path)
    assert not found.problems
    assert found.topics == {topic.name: topic.topic_id for topic in topics}
    assert len(found.partitions) == 602
    of_a = found.partitions_of("a")
    assert [(p["leader"], p["leaderEpoch"], p["isr"], p["replicas"]) for p in of_a.values()] == [
        (-1, 3, [7], [7]),
        (-1, 0, [7], [7]),
    ]
    if release >= Release(3, 7, 0):
        assert of_a[0]["directories"] == [cluster.directory_id]
    assert found.configs == {("topic", "a"): {"cleanup.policy": "compact"}}
    assert found.next_producer_id == 5000
    assert found.features == bootstrap(read_directory(LocalTree(str(tmp_path)))).features == features_of(release)
    assert list(open_store(str(tmp_path)).verify()) == []


@pytest.mark.parametrize("name", ["3.9.2-clean", "4.3.1-clean"])
def test_features_are_those_that_a_broker_formats(name: str) -> None:
    formatted = dict(bootstrap(read_directory(LocalTree(golden.pristine(name)))).features)
    formatted.pop("eligible.leader.replicas.version", None)
    assert features_of(Release.parse(name.partition("-")[0])) == formatted


def test_features_of_another_cluster_count_as_far_as_the_release_knows_them() -> None:
    wanted = {METADATA_VERSION: 30, "transaction.version": 1, "eligible.leader.replicas.version": 1}
    assert features_of(Release(4, 0, 0), wanted) == {METADATA_VERSION: 25, "group.version": 1, "transaction.version": 1}
    assert features_of(Release(3, 9, 2), {METADATA_VERSION: 17}) == {METADATA_VERSION: 17}


def test_release_without_kraft_is_refused() -> None:
    with pytest.raises(Refused, match="ZooKeeper"):
        features_of(Release(2, 8, 2))


def test_files_that_are_there_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("mine")
    with pytest.raises(FileExistsError):
        write_cluster(tmp_path, Cluster(CLUSTER_ID, 1, Release(4, 3, 1)))
    assert (tmp_path / "meta.properties").read_text() == "mine"
