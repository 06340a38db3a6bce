"""The kvs as Flux's own programs ask: commits and lookups of treeobjs, in a namespace."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import Append, Fetch, Fetched, Put, Stored, StoreOps, Unlink
from flux_trio.messages import Errno
from tests.support.asking import asked
from tests.support.kvs_script import answers, turn

NONE = "sha1-" + 39 * "0"


def val(text: str) -> dict[str, Any]:
    return {"ver": 1, "type": "val", "data": base64.b64encode(text.encode()).decode()}


def committed(*ops: dict[str, Any], namespace: str = "primary") -> Any:
    return asked("kvs.commit", {"namespace": namespace, "flags": 0, "ops": list(ops)})


def looked_up(key: str, **more: Any) -> Any:
    return asked("kvs.lookup", {"key": key, "namespace": "primary", "flags": 0, **more})


def test_a_commit_of_treeobjs_stores_their_texts_and_answers_with_the_root() -> None:
    core = KvsCore()
    put = {"key": "a", "flags": 0, "dirent": val("é")}
    append = {"key": "b", "flags": 32, "dirent": val("x")}
    unlink = {"key": "c", "flags": 0, "dirent": None}
    assert turn(core, committed(put, append, unlink)) == [
        StoreOps([Put("a", "é"), Append("b", "x"), Unlink("c")])
    ]
    assert answers(turn(core, Stored())) == [(1, 0, {"rootref": f"{NONE}1", "rootseq": 1})]


def test_the_namespace_of_a_job_is_below_its_guest() -> None:
    op = {"key": "exec.eventlog", "flags": 32, "dirent": val("x")}
    (action,) = turn(KvsCore(), committed(op, namespace="job-1"))
    assert action == StoreOps([Append("job.0000.0000.0000.0001.guest.exec.eventlog", "x")])


def test_a_lookup_has_the_value_as_a_treeobj() -> None:
    core = KvsCore()
    (fetch,) = turn(core, looked_up("a"))
    assert isinstance(fetch, Fetch)
    assert fetch.keys == ["a"]
    assert answers(turn(core, Fetched(["é"], []))) == [(1, 0, {"val": val("é")})]
    turn(core, looked_up("b"))
    assert answers(turn(core, Fetched([None], [])))[0][1] == Errno.ENOENT


@pytest.mark.parametrize(
    ("request_", "errnum"),
    [
        (looked_up("a", flags=1), Errno.ENOSYS),
        (looked_up("a", namespace="mine"), Errno.ENOTSUP),
        (looked_up("a", namespace="job-99999999999999999999999"), Errno.ENOTSUP),
        (committed({"key": "a", "dirent": {"ver": 1, "type": "dir", "data": {}}}), Errno.ENOSYS),
        (committed({"key": "a", "dirent": val("x") | {"data": "?"}}), Errno.EINVAL),
        (committed({"key": "a", "dirent": {"type": 1}}), Errno.EPROTO),
    ],
)
def test_what_is_not_here_is_refused_and_nothing_is_stored(request_: Any, errnum: int) -> None:
    assert [each[:2] for each in answers(turn(KvsCore(), request_))] == [(1, errnum)]
