"""Properties that are added to a resource set, or removed from it (RFC 20)."""

from __future__ import annotations

from flux_trio.formats import Idset, ResourceSet


def ids(text: str) -> Idset:
    return Idset.parse(text)


def test_properties_are_added_and_removed() -> None:
    before = ResourceSet.build(
        [(rank, 1, 0) for rank in range(3)],
        lambda rank: f"n{rank}",
        properties={"fast": ids("0-1"), "old": ids("2")},
    )
    after = before.with_properties({"fast": ids("2"), "ssd": ids("1,7")}, {"old": ids("0-9")})
    assert after.properties == {"fast": ids("0-2"), "ssd": ids("1")}
    assert before.properties == {"fast": ids("0-1"), "old": ids("2")}
    assert before.with_properties({}, {"none": ids("0")}) == before
