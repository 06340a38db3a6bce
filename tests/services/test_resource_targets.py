"""The inventory from the configuration, and targets as people name them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flux_trio.config import FakeResourcesConfig, ResourceConfig, ResourceEntry
from flux_trio.cores.resource import inventory_from_config, inventory_of_machine, parse_targets
from flux_trio.formats import FormatError, Idset, ResourceSet, format_r
from flux_trio.messages import Errno, FluxError
from flux_trio.services.inventory import find_inventory


def execution(inventory: ResourceSet) -> dict[str, object]:
    found = inventory.to_json()["execution"]
    assert isinstance(found, dict)
    return found


def test_hosts_are_numbered_in_the_order_they_are_named() -> None:
    inventory = inventory_from_config(
        [ResourceEntry("b[2-3]", cores="0-1"), ResourceEntry("a1", cores="0", gpus="0-1")]
    )
    assert execution(inventory)["R_lite"] == [
        {"rank": "0-1", "children": {"core": "0-1"}},
        {"rank": "2", "children": {"core": "0", "gpu": "0-1"}},
    ]
    assert execution(inventory)["nodelist"] == ["b[2-3],a1"]


def test_entries_add_to_hosts_named_before() -> None:
    """The example of flux-config-resource(5)."""
    inventory = inventory_from_config(
        [
            ResourceEntry("test[1-100]", cores="0-7"),
            ResourceEntry("test[1,2]", gpus="0-1"),
            ResourceEntry("test[1-89]", properties=["batch"]),
            ResourceEntry("test[90-100]", properties=["debug"]),
        ]
    )
    assert inventory.nnodes == 100
    assert inventory.gpus(1) == Idset.parse("0-1")
    assert not inventory.gpus(2)
    assert inventory.cores(99) == Idset.parse("0-7")
    assert inventory.properties == {"batch": Idset.parse("0-88"), "debug": Idset.parse("89-99")}


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        (ResourceEntry("n[0-", cores="0"), r"resource\.config\[1\]\.hosts: expected a hostlist"),
        (ResourceEntry("", cores="0"), r"resource\.config\[1\]\.hosts: .* at least one host"),
        (ResourceEntry("n1", cores="1-"), r"resource\.config\[1\]\.cores: expected an idset"),
        (ResourceEntry("n1", gpus="x"), r"resource\.config\[1\]\.gpus: expected an idset"),
        (ResourceEntry("n1", properties=["a|b"]), r"resource\.config\[1\]\.properties: "),
        (ResourceEntry("n1", gpus="0"), r'resource\.config: .* each with a core, got "n1"'),
    ],
)
def test_wrong_entry_is_named(entry: ResourceEntry, where: str) -> None:
    with pytest.raises(FormatError, match=where):
        inventory_from_config([ResourceEntry("n0", cores="0"), entry])


def test_configuration_without_hosts_is_refused() -> None:
    with pytest.raises(FormatError, match="at least one host"):
        inventory_from_config([])


def test_machine_poses_as_targets_that_each_have_its_cores() -> None:
    inventory = inventory_of_machine("laptop", Idset.parse("0-3"), 3)
    assert execution(inventory)["R_lite"] == [{"rank": "0-2", "children": {"core": "0-3"}}]
    assert inventory.hostnames == ("laptop",) * 3


def test_without_configuration_the_inventory_is_this_machine() -> None:
    inventory, exclude = find_inventory(ResourceConfig(targets=2, exclude="1"))
    assert set(inventory.cores(1)) == os.sched_getaffinity(0)
    assert (inventory.nnodes, exclude) == (2, Idset.parse("1"))


def test_configured_inventory_and_exclude() -> None:
    entry = ResourceEntry("n[0-3]", cores="0")
    inventory, exclude = find_inventory(ResourceConfig(config=[entry], exclude="n[1,3]"))
    assert inventory == inventory_from_config([entry])
    assert exclude == Idset.parse("1,3")


def test_inventory_may_be_r_in_a_file(tmp_path: Path) -> None:
    """flux-config-resource(5), path; `config` comes before it. The times of R say nothing here."""
    path = tmp_path / "R"
    stored = inventory_from_config([ResourceEntry("n[0-3]", cores="0-1", properties=["fast"])])
    path.write_text(format_r(stored.with_times(10.0, 20.0)))
    config = ResourceConfig(path=str(path), exclude="n3")
    assert find_inventory(config) == (stored, Idset.parse("3"))
    entry = ResourceEntry("other", cores="0")
    inventory, _ = find_inventory(ResourceConfig(path=str(path), config=[entry]))
    assert inventory.hostnames == ("other",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "resource.path: expected R (RFC 20) in {}, got No such file or directory"),
        ('{"version": 1}', "{}.execution: expected an object, got nothing"),
        ("hosts", "{}: expected a JSON object, got bytes that are not JSON"),
    ],
)
def test_file_without_r_is_named(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "R"
    if text is not None:
        path.write_text(text)
    with pytest.raises(FormatError) as caught:
        find_inventory(ResourceConfig(path=str(path)))
    assert str(caught.value).startswith(problem.format(path))


def test_fake_resources_are_equal_nodes_named_by_their_number() -> None:
    """flux-config-fake-resources(5)"""
    fake = FakeResourcesConfig(nnodes=3, cores_per_node=2, gpus_per_node=1, host_prefix="node")
    inventory, _ = find_inventory(ResourceConfig(), fake)
    assert execution(inventory)["R_lite"] == [
        {"rank": "0-2", "children": {"core": "0-1", "gpu": "0"}}
    ]
    assert execution(inventory)["nodelist"] == ["node[0-2]"]
    inventory, _ = find_inventory(ResourceConfig(), FakeResourcesConfig(nnodes=1))
    assert (inventory.ncores, inventory.ngpus, inventory.hostnames) == (64, 0, ("fake0",))


def test_resources_of_the_enclosing_job_are_taken_unless_they_are_rediscovered() -> None:
    allocated = inventory_from_config([ResourceEntry("n[0-3]", cores="7")]).with_nslots(4)
    inventory, _ = find_inventory(ResourceConfig(), allocated=allocated)
    assert inventory == inventory_from_config([ResourceEntry("n[0-3]", cores="7")])
    inventory, _ = find_inventory(ResourceConfig(rediscover=True), allocated=allocated)
    assert set(inventory.cores(0)) == os.sched_getaffinity(0)


def test_wrong_exclude_is_named() -> None:
    config = ResourceConfig(config=[ResourceEntry("n[0-3]", cores="0")], exclude="7")
    with pytest.raises(FluxError, match=r"resource\.exclude: idset is out of range: 7"):
        find_inventory(config)


INVENTORY = inventory_from_config([ResourceEntry("n[0-3]", cores="0")])


@pytest.mark.parametrize(
    ("text", "targets"), [("1", "1"), ("0-3", "0-3"), ("n1", "1"), ("n[3,0-1]", "0-1,3")]
)
def test_targets_are_an_idset_or_a_hostlist(text: str, targets: str) -> None:
    assert parse_targets(text, INVENTORY) == Idset.parse(targets)


def test_host_of_several_targets_names_them_all() -> None:
    assert parse_targets("h", inventory_of_machine("h", Idset.of([0]), 3)) == Idset.parse("0-2")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "idset is empty"),
        ("2-5", "idset is out of range: 4-5 not among 0-3"),
        ("n0,x[1-2]", r"invalid targets: invalid hosts: x\[1-2\]"),
        ("n[0", r"invalid targets: 'n\[0'"),
    ],
)
def test_targets_that_are_not_there_are_refused(text: str, error: str) -> None:
    with pytest.raises(FluxError, match=error) as caught:
        parse_targets(text, INVENTORY)
    assert caught.value.errnum == Errno.EINVAL
