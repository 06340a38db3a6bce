"""The kvs as flux-core's programs speak with it, in the edition current: against a real store."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.namespaces import EMPTY_ROOT, GUEST_BYTES_MAX
from flux_trio.cores.kvs.ops import Fetch, KvsInput, Stored, StoreOps
from flux_trio.cores.stored_jobs import PIECE_CHARS
from flux_trio.cores.turns import Log, SetTimer, TimerFired
from flux_trio.editions import CURRENT
from flux_trio.editions.flux_kvs import APPEND, READLINK, WAITCREATE, WATCH
from flux_trio.formats import job_key
from flux_trio.formats.treeobj import directory, dirref, link, val
from flux_trio.messages import ROLE_OWNER, Errno, Event, Flag, Request, Response, topics
from flux_trio.store import trees
from flux_trio.store.executing import execute
from flux_trio.store.stores import MemoryStore
from tests.support.asking import GUEST_USERID, OWNER_USERID, asked, asked_by_guest, gone

OWNER = OWNER_USERID
GUEST = GUEST_USERID


OUTPUT_1 = job_key(1, "guest.output.1")


class FluxKvs:
    """A core and its store; `__call__` returns (matchtag, errnum, payload) of each answer.

    `room` is what the job manager answers when a guest is to write more; None: it waits.
    """

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.core = KvsCore(OWNER, CURRENT)
        self.room: tuple[int, str] | None = (0, "")
        self.is_full = False  # the disk
        self.asked: list[Request] = []  # job-manager.store-room
        self.store = store or MemoryStore()
        self.sent: list[tuple[str, Any]] = []  # requests of the kvs
        self._settle(self.core.start(0.0))

    def __call__(self, *requests: Request) -> list[tuple[int, int, Any]]:
        return self.told(*requests)

    def told(self, *inputs: KvsInput) -> list[tuple[int, int, Any]]:
        found = self._settle(self.core.turn(0.0, list(inputs)))
        return [(each.matchtag, each.errnum, each.payload) for each in found]

    def _settle(self, actions: list[Any]) -> list[Response]:
        told: list[Response] = []
        while actions:
            results: list[KvsInput] = []
            for each in actions:
                if isinstance(each, Response):
                    told.append(each)
                elif isinstance(each, Request) and each.topic == topics.JOB_STORE_ROOM:
                    self.asked.append(each)
                    if self.room is not None:
                        results.append(answer(each, *self.room))
                elif isinstance(each, Request):
                    self.sent.append((each.topic, each.payload))
                elif self.is_full and isinstance(each, StoreOps):
                    results.append(Stored(Errno.ENOSPC, "full"))
                elif not isinstance(each, Log | SetTimer):
                    results.append(execute(self.store, each))
            actions = self.core.turn(0.0, results) if results else []
        return told

    def put(self, key: str, text: str, **more: Any) -> tuple[int, Any]:
        return self.one(commit(op(key, val(text)), **more))

    def get(self, key: str, flags: int = 0, **more: Any) -> tuple[int, Any]:
        return self.one(lookup(key, flags, **more))

    def one(self, request: Request) -> tuple[int, Any]:
        ((_, errnum, payload),) = self(request)
        return errnum, payload


def answer(request: Request, errnum: int, text: str) -> Response:
    return Response(request.topic, text or None, errnum, request.matchtag)


def op(key: str, dirent: Any, flags: int = 0) -> dict[str, Any]:
    return {"key": key, "flags": flags, "dirent": dirent}


def by_guest(namespace: str, nbytes: int) -> Request:
    """A guest writes so many bytes into a namespace."""
    payload = {"namespace": namespace, "flags": 0, "ops": [op("own", val("x" * nbytes))]}
    return asked_by_guest("kvs.commit", payload)


def commit(*ops: dict[str, Any], namespace: str = "primary", **more: Any) -> Request:
    payload = {"namespace": namespace, "flags": 0, "ops": list(ops)}
    return asked("kvs.commit", payload, **more)


def lookup(key: str, flags: int = 0, topic: str = "kvs.lookup", **more: Any) -> Request:
    return asked(topic, {"key": key, "namespace": "primary", "flags": flags, **more})


def watch(key: str, flags: int, tag: int = 9, namespace: str = "primary") -> Request:
    payload = {"key": key, "namespace": namespace, "flags": flags}
    return asked("kvs-watch.lookup", payload, tag=tag, streaming=bool(flags & (4 | 512)))


@pytest.fixture
def kvs() -> FluxKvs:
    return FluxKvs()


class TestLookups:
    def test_a_value_a_directory_and_what_is_not_there(self, kvs: FluxKvs) -> None:
        kvs.put("a.b", "1")
        assert kvs.get("a.b") == (0, {"val": val("1")})
        assert kvs.get("a")[0] == Errno.EISDIR
        assert kvs.get("a", 1) == (0, {"val": directory({"b": val("1")})})
        assert kvs.get("a.b", 1)[0] == Errno.ENOTDIR
        assert kvs.get("a.c")[0] == kvs.get("a.b.c")[0] == Errno.ENOENT
        assert kvs.get("a.b", 2)[0] == Errno.EINVAL  # no link

    def test_namespace_of_a_job_that_runs_is_read_as_a_link_where_the_job_is(
        self, kvs: FluxKvs
    ) -> None:
        key = job_key(1, "guest")
        assert kvs.get(key, READLINK)[0] == Errno.ENOENT
        create = {"namespace": "job-1", "rootref": EMPTY_ROOT, "owner": GUEST, "flags": 0}
        kvs.one(asked("kvs.namespace-create", create))
        kvs.put("a", "b", namespace="job-1")
        assert kvs.get(key, READLINK) == (0, {"val": link("job-1")})
        assert kvs.get("a", READLINK, namespace="job-1")[0] == Errno.EINVAL
        assert kvs.get(job_key(1, "guest.a")) == (0, {"val": val("b")})  # it is followed
        kvs.one(asked("kvs.namespace-remove", {"namespace": "job-1"}))
        assert kvs.get(key, READLINK)[0] == Errno.EINVAL  # a directory

    def test_bytes_that_are_no_text_come_back(self, kvs: FluxKvs) -> None:
        raw = {"ver": 1, "type": "val", "data": "/wD+4piDw6k="}
        assert kvs.one(commit(op("a", raw)))[0] == 0
        assert kvs.get("a") == (0, {"val": raw})

    def test_periods_that_mean_nothing_are_left_out(self, kvs: FluxKvs) -> None:
        kvs.put("a.b", "1")
        assert kvs.get(".a..b.") == (0, {"val": val("1")})
        assert kvs.get(".", 1) == (0, {"val": directory({"a": directory({})})})

    def test_lookup_plus_tells_the_root_also_of_what_is_not_there(self, kvs: FluxKvs) -> None:
        _, root = kvs.put("a", "1")
        assert kvs.get("a", topic="kvs.lookup-plus") == (0, {"val": val("1"), **root})
        assert kvs.get("b", topic="kvs.lookup-plus") == (0, {"errno": 2, **root})

    def test_todays_root_is_taken_and_no_other_one(self, kvs: FluxKvs) -> None:
        _, before = kvs.put("a", "1")
        at = {"rootdir": dirref(before["rootref"])}
        assert kvs.one(asked("kvs.lookup", {"key": "a", "flags": 0, **at})) == (
            0,
            {"val": val("1")},
        )
        kvs.put("a", "2")
        errnum, text = kvs.one(asked("kvs.lookup", {"key": "a", "flags": 0, **at}))
        assert errnum == Errno.EINVAL
        assert "snapshots are not kept" in text

    @pytest.mark.parametrize(
        ("payload", "errnum"),
        [
            ({"flags": 0}, Errno.EPROTO),
            ({"key": "a", "flags": 0}, Errno.EPROTO),
            ({"key": "a", "namespace": "primary"}, Errno.EPROTO),
            ({"key": "a", "namespace": "no", "flags": 0}, Errno.ENOTSUP),
            ({"key": "", "namespace": "primary", "flags": 0}, Errno.EINVAL),
            ({"key": "a", "namespace": "primary", "flags": 4}, Errno.EPROTO),
        ],
    )
    def test_bad_requests_are_refused(self, kvs: FluxKvs, payload: Any, errnum: int) -> None:
        assert kvs.one(asked("kvs.lookup", payload))[0] == errnum

    def test_the_root_is_named_by_its_period(self, kvs: FluxKvs) -> None:
        kvs.put("a", "1")
        assert kvs.get(".") == (Errno.EISDIR, ".: is a directory")

    def test_our_indices_are_no_keys_of_primary(self, kvs: FluxKvs) -> None:
        kvs(asked("store.commit", {"ops": [["put", "active.1", ""], ["put", "a", "1"]]}))
        assert kvs.get(".", 1) == (0, {"val": directory({"a": val("1")})})
        assert kvs.get("active.1")[0] == kvs.put("active.1", "x")[0] == Errno.EINVAL

    @pytest.mark.parametrize(("bound", "most"), [("ENTRIES_MAX", 2), ("VALUE_BYTES_MAX", 0)])
    def test_a_directory_with_too_much_in_it_is_not_listed(
        self, kvs: FluxKvs, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
    ) -> None:
        for key in ("d.a", "d.b", "d.c.x"):
            kvs.put(key, "1")
        entries = {"a": val("1"), "b": val("1"), "c": directory({})}
        assert kvs.get("d", 1) == (0, {"val": directory(entries)})
        monkeypatch.setattr(trees, bound, most)
        errnum, text = kvs.one(lookup("d", 1))
        assert (errnum, text.partition(":")[0]) == (Errno.EMSGSIZE, "d")
        assert kvs.get("d")[0] == Errno.EISDIR
        assert kvs.get("d.a") == (0, {"val": val("1")})

    def test_output_in_pieces_is_one_value(self, kvs: FluxKvs) -> None:
        key = job_key(1, "guest.output")
        pieces = [["put", key, "a"], ["put", f"{key}.1", "b"], ["put", f"{key}.2", "c"]]
        kvs(asked("store.commit", {"ops": pieces}))
        assert kvs.get(key) == (0, {"val": val("abc")})


class TestCommits:
    @pytest.mark.parametrize("dirent", [val("1"), directory({"b": val("1")})])
    def test_a_treeobj_of_another_version_is_refused(self, kvs: FluxKvs, dirent: Any) -> None:
        errnum, text = kvs.one(commit(op("a", {**dirent, "ver": 2})))
        assert (errnum, text) == (Errno.EINVAL, "a: expected a treeobj of version 1, got 2")
        assert kvs.get("a")[0] == Errno.ENOENT

    def test_a_put_replaces_a_directory_and_a_value_in_the_way(self, kvs: FluxKvs) -> None:
        kvs.put("a.b", "1")
        kvs.put("a", "2")
        assert kvs.get("a") == (0, {"val": val("2")})
        assert kvs.get("a.b")[0] == Errno.ENOENT
        kvs.put("a.b.c", "3")
        assert kvs.get("a")[0] == Errno.EISDIR
        assert kvs.get("a.b.c") == (0, {"val": val("3")})

    def test_an_append_to_a_directory_is_refused_and_nothing_is_stored(self, kvs: FluxKvs) -> None:
        kvs.put("a.b", "1")
        errnum, _ = kvs.one(commit(op("c", val("x")), op("a", val("x"), 32)))
        assert errnum == Errno.EISDIR
        assert kvs.get("c")[0] == Errno.ENOENT

    def test_each_commit_is_counted_and_the_number_outlives_the_core(self, kvs: FluxKvs) -> None:
        assert [kvs.put(key, "1")[1]["rootseq"] for key in "abc"] == [1, 2, 3]
        after = FluxKvs(kvs.store)
        errnum, root = after.one(asked("kvs.getroot", {"namespace": "primary"}))
        assert (errnum, root["rootseq"], root["owner"]) == (0, 3, OWNER)

    @pytest.mark.parametrize(
        ("dirent", "errnum"),
        [
            ({"ver": 1, "type": "valref", "data": ["sha1-x"]}, Errno.ENOTSUP),
            ({"ver": 1, "type": "dirref", "data": ["sha1-x"]}, Errno.ENOTSUP),
            ({"ver": 1, "type": "symlink", "data": {"target": "b"}}, Errno.ENOTSUP),
            ({"ver": 1, "type": "dir", "data": {}}, Errno.ENOTSUP),
            ({"ver": 1, "type": "val", "data": "?"}, Errno.EPROTO),
            ("x", Errno.EPROTO),
        ],
    )
    def test_what_is_not_stored_is_refused(self, kvs: FluxKvs, dirent: Any, errnum: int) -> None:
        assert kvs.one(commit(op("a", dirent)))[0] == errnum

    def test_a_directory_that_is_given_whole_is_put(self, kvs: FluxKvs) -> None:
        kvs.put("a.z", "0")
        kvs.one(commit(op("a", directory({"b": val("1"), "c": directory({"d": val("2")})}))))
        assert kvs.get("a", 1)[1] == {"val": directory({"b": val("1"), "c": directory({})})}

    @pytest.mark.parametrize("namespace", ["primary", "job-1"])
    def test_a_sender_reads_what_it_has_committed(self, kvs: FluxKvs, namespace: str) -> None:
        kvs(create("job-1"))
        done = kvs(
            commit(op("a.b", val("1")), namespace=namespace, tag=1),
            asked("kvs.lookup", {"key": "a.b", "namespace": namespace, "flags": 0}, tag=2),
        )
        assert [each[0] for each in done] == [1, 2]
        assert done[1][2] == {"val": val("1")}

    def test_commits_of_a_sender_for_many_jobs_are_stored_together(self, kvs: FluxKvs) -> None:
        """Two at once in one namespace are not: the second must see the first."""
        names = [f"job-{number}" for number in range(1, 4)]
        kvs(*[create(name) for name in names])
        asks = [commit(op("a.b", val("1")), namespace=name) for name in [*names, names[0]]]
        (reads,) = kvs.core.turn(0.0, asks)
        stored, *again = kvs.core.turn(0.0, [execute(kvs.store, reads)])
        assert (type(stored), [type(each) for each in again]) == (StoreOps, [Fetch])
        inputs = [execute(kvs.store, each) for each in (stored, *again)]
        done = [each for each in kvs.core.turn(0.0, inputs) if isinstance(each, Response)]
        assert [each.payload["rootseq"] for each in done] == [1, 1, 1]

    @pytest.mark.parametrize("fills_late", [True, False])
    def test_commits_of_a_sender_for_many_jobs_keep_their_order_on_a_full_disk(
        self, kvs: FluxKvs, fills_late: bool
    ) -> None:
        """Also with a read between them, for which the second one waits."""
        kvs(create("job-1"), create("job-2"))
        kvs.is_full = True
        first, then = (commit(op("a.b", val("1")), namespace=f"job-{n}", tag=n) for n in (1, 2))
        look = asked("kvs.lookup", {"key": "a", "namespace": "primary", "flags": 0}, tag=3)
        asks = [first, look, then]
        fills = commit(op("x", val("1")), by="bob", tag=4)
        assert kvs(*([*asks, fills] if fills_late else [fills])) == []
        assert fills_late or kvs(*asks) == []
        assert kvs.told(TimerFired("retry")) == []
        kvs.is_full = False
        done = [tag for tag, _, _ in kvs.told(TimerFired("retry"))]
        assert [tag for tag in done if tag != 4] == [1, 3, 2]

    @pytest.mark.parametrize("job_is_first", [True, False])
    def test_a_commit_by_the_other_name_of_a_place_is_in_its_turn(
        self, kvs: FluxKvs, job_is_first: bool
    ) -> None:
        """The namespace of a job is what is below job.<id>.guest."""
        kvs(create("job-1"))
        names = [("job-1", ""), ("primary", job_key(1, "guest."))]
        (first, start), (then, at) = names if job_is_first else reversed(names)
        kvs(
            commit(op(f"{start}d.a", val("1")), namespace=first),
            commit(op(f"{at}d.a.b", val("2")), namespace=then),
        )
        found = [kvs.get(key, namespace="job-1")[0] for key in ("d.a", "d.a.b")]
        assert found == [Errno.EISDIR, 0]


def create(name: str, owner: int = OWNER, root: str = EMPTY_ROOT) -> Request:
    payload = {"namespace": name, "rootref": root, "owner": owner, "flags": 0}
    return asked("kvs.namespace-create", payload)


class TestNamespaces:
    def test_one_has_keys_of_its_own_until_it_is_removed(self, kvs: FluxKvs) -> None:
        assert kvs.one(create("n"))[0] == 0
        assert kvs.one(create("n"))[0] == Errno.EEXIST
        kvs.put("a", "1", namespace="n")
        assert kvs.get("a")[0] == Errno.ENOENT
        assert kvs.get("a", namespace="n") == (0, {"val": val("1")})
        assert FluxKvs(kvs.store).get("a", namespace="n") == (0, {"val": val("1")})
        _, listed = kvs.one(asked("kvs.namespace-list", {}))
        assert [each["namespace"] for each in listed["namespaces"]] == ["primary", "n"]
        remove = asked("kvs.namespace-remove", {"namespace": "n"})
        assert kvs.one(remove)[0] == kvs.one(remove)[0] == 0
        assert kvs.get("a", namespace="n")[0] == Errno.ENOTSUP
        assert kvs.store.dir("kvs-contents") == []

    def test_the_root_of_an_empty_one_is_that_of_the_empty_directory(self, kvs: FluxKvs) -> None:
        """The blobref is flux-core's: SHA-1 of the treeobj of an empty directory."""
        kvs(create("n", root="sha1-c0a9faf907dda6216fd73bf81d0b3b21a1a8cb91"))
        ask = asked("kvs.getroot", {"namespace": "n"})
        _, before = kvs.one(ask)
        assert (before["rootseq"], before["rootref"]) == (0, EMPTY_ROOT)
        kvs.put("a", "1", namespace="n")
        _, after = kvs.one(ask)
        assert (after["rootseq"], after["rootref"] == EMPTY_ROOT) == (1, False)

    def test_snapshots_and_other_hashes_are_refused(self, kvs: FluxKvs) -> None:
        for root in ("sha256-1", "sha1-" + 40 * "0"):
            errnum, text = kvs.one(create("n", root=root))
            assert errnum == Errno.EINVAL
            assert "snapshots are not kept" in text

    def test_primary_stays(self, kvs: FluxKvs) -> None:
        remove = asked("kvs.namespace-remove", {"namespace": "primary"})
        assert kvs.one(remove)[0] == Errno.ENOTSUP

    def test_a_guest_has_his_own_only(self, kvs: FluxKvs) -> None:
        kvs(create("his", GUEST), create("other", GUEST + 1))
        for namespace, errnum in (("his", 0), ("other", Errno.EPERM), ("primary", Errno.EPERM)):
            ops = [op("a", val("1"))]
            payload = {"namespace": namespace, "flags": 0, "ops": ops}
            assert kvs.one(asked_by_guest("kvs.commit", payload))[0] == errnum
            at = {"key": "a", "namespace": namespace, "flags": 0}
            assert kvs.one(asked_by_guest("kvs.lookup", at))[0] == errnum
            root = asked_by_guest("kvs.getroot", {"namespace": namespace})
            assert kvs.one(root)[0] == errnum
        made = asked_by_guest("kvs.namespace-create", {})
        assert kvs.one(made)[0] == Errno.EPERM
        store = asked_by_guest("store.page", {"prefix": ""})
        assert kvs.one(store)[0] == Errno.EPERM

    def test_what_a_guest_writes_is_bounded_also_after_a_restart(self, kvs: FluxKvs) -> None:
        kvs(create("his", GUEST))
        half = {"namespace": "his", "flags": 0, "ops": [op("a", val("x" * (GUEST_BYTES_MAX // 2)))]}
        assert kvs.one(asked_by_guest("kvs.commit", half))[0] == 0
        errnum, text = FluxKvs(kvs.store).one(asked_by_guest("kvs.commit", half))
        assert errnum == Errno.ENOSPC
        assert f"at most {GUEST_BYTES_MAX}" in text
        assert kvs.one(commit(*half["ops"], namespace="his"))[0] == 0  # the owner is not bounded

    def test_the_job_manager_says_whether_a_guest_may_write_more(self, kvs: FluxKvs) -> None:
        for name in ("job-1", "his"):
            kvs.one(create(name, GUEST))
        kvs.put("output", "x" * 3000, namespace="job-1")  # the execution service's: nobody is asked
        assert kvs.asked == []
        for namespace, jobid, nbytes in (
            ("job-1", 1, 6000),
            ("job-1", 1, 9000),
            ("his", None, 3000),
        ):
            assert kvs.one(by_guest(namespace, 3000))[0] == 0
            (asked_room,) = kvs.asked
            assert asked_room.payload["id"] == jobid
            assert nbytes < asked_room.payload["nbytes"] < nbytes + 200
            kvs.asked.clear()
        kvs.room = (Errno.ENOSPC, "too much")
        assert kvs.one(by_guest("job-1", 3000)) == (Errno.ENOSPC, "too much")
        kvs.room = (Errno.ENOSYS, "no job manager")  # nobody knows
        assert kvs.one(by_guest("job-1", 3000))[0] == 0
        refused, taken = kvs.asked
        assert refused.payload == taken.payload  # what was refused does not count

    def test_a_guest_reads_what_he_has_written_and_nobody_else_waits(self, kvs: FluxKvs) -> None:
        for name, owner in (("his", GUEST), ("other", GUEST + 1)):
            kvs(create(name, owner))
        kvs.room = None
        at = {"key": "own", "namespace": "his", "flags": 0}
        write = [msgspec.structs.replace(by_guest("his", 2), matchtag=tag) for tag in (1, 2)]
        read = [asked_by_guest("kvs.lookup", at, tag=tag) for tag in (3, 4)]
        assert kvs(write[0], read[0], write[1], read[1]) == []
        assert kvs.get("a", namespace="other")[0] == Errno.ENOENT
        first = kvs.told(answer(kvs.asked[0], 0, ""))
        assert [(tag, errnum) for tag, errnum, _ in first] == [(1, 0), (3, 0)]
        assert kvs.told(answer(kvs.asked[1], Errno.ENOSPC, "too much")) == [
            (2, Errno.ENOSPC, "too much"),
            (4, 0, {"val": val("xx")}),
        ]

    def test_a_guest_that_leaves_is_forgotten_with_what_he_waits_for(self, kvs: FluxKvs) -> None:
        kvs(create("his", GUEST))
        kvs.room = None
        at = {"key": "own", "namespace": "his", "flags": WATCH}
        follow = asked_by_guest("kvs-watch.lookup", at, tag=5, streaming=True)
        leaves = [asked_by_guest(f"{service}.disconnect") for service in ("kvs", "kvs-watch")]
        assert kvs(by_guest("his", 2), follow, *leaves) == []
        assert kvs.told(answer(kvs.asked[0], 0, "")) == []
        assert kvs.one(asked("kvs-watch.stats-get"))[1]["watchers"] == 0
        assert kvs.get("own", namespace="his") == (0, {"val": val("xx")})

    def test_the_job_manager_is_told_how_much_guests_have_in_namespaces_of_jobs(self) -> None:
        kvs = FluxKvs()
        kvs.one(create("job-1", GUEST))
        kvs.one(create("job-2"))
        for name in ("job-1", "job-2"):
            kvs.put("output", "x" * 3000, namespace=name)
        assert kvs.sent == []
        kvs.one(by_guest("job-1", 3000))
        ((topic, told),) = kvs.sent
        assert (topic, told["id"]) == ("job-manager.stored", 1)
        assert 6000 < told["nbytes"] < 6200
        kvs.one(by_guest("job-1", 100))
        assert len(kvs.sent) == 1
        kvs.core.turn(0.0, [])
        back = Event("service-back", {"service": "job-manager"}, rolemask=ROLE_OWNER)
        (again,) = kvs.core.turn(0.0, [back])
        assert isinstance(again, Request)
        assert again.payload["nbytes"] > told["nbytes"]
        assert FluxKvs(kvs.store).sent == [("job-manager.stored", again.payload)]

    def test_that_of_a_job_is_a_view_of_its_guest(self, kvs: FluxKvs) -> None:
        kvs.one(create("job-1", GUEST))
        kvs.put("exec.eventlog", "x", namespace="job-1")
        key = job_key(1, "guest.exec.eventlog")
        assert kvs.get(key) == (0, {"val": val("x")})
        link = {"ver": 1, "type": "symlink", "data": {"namespace": "job-1", "target": "."}}
        assert kvs.one(commit(op(job_key(1, "guest"), link)))[0] == 0  # it is so already
        _, root = kvs.one(asked("kvs.getroot", {"namespace": "job-1"}))
        graft = commit(op(job_key(1, "guest"), dirref(root["rootref"])))
        assert kvs.one(graft)[0] == 0
        kvs.one(asked("kvs.namespace-remove", {"namespace": "job-1"}))
        assert kvs.get(key) == (0, {"val": val("x")})

    def test_output_of_a_job_grows_piece_by_piece_and_is_one_value(self, kvs: FluxKvs) -> None:
        kvs.one(create("job-1", GUEST))
        long = "x" * PIECE_CHARS
        for text in (long, "two", "three"):
            kvs.one(commit(op("output", val(text), APPEND), namespace="job-1"))
        whole = {"val": val(f"{long}twothree")}
        assert kvs.get("output", namespace="job-1") == (0, whole)
        (value,) = kvs.one(asked("store.lookup-all", {"keys": [OUTPUT_1]}))[1]["values"]
        assert value == "twothree"

    def test_output_of_a_job_is_asked_for_when_it_is_first_read(self, kvs: FluxKvs) -> None:
        assert kvs(watch("output", WATCH | WAITCREATE, namespace="job-1")) == []
        assert kvs.sent == []
        kvs.one(create("job-1", GUEST))
        kvs.get("output", namespace="job-1")
        assert kvs.sent == [("job-exec.copy", {"id": 1})]

    def test_a_version_is_waited_for(self, kvs: FluxKvs) -> None:
        wait = asked("kvs.wait-version", {"rootseq": 2, "namespace": "primary"}, tag=7)
        assert kvs(wait) == []
        kvs.put("a", "1")
        told = kvs(commit(op("a", val("2")), tag=1))
        assert [(tag, root["rootseq"]) for tag, _, root in told] == [(1, 2), (7, 2)]
        ((_, _, root),) = kvs(wait)
        assert root["rootseq"] == 2


class TestWatches:
    def test_each_commit_of_the_key_is_told(self, kvs: FluxKvs) -> None:
        kvs.put("a", "1")
        assert kvs(watch("a", 4)) == [(9, 0, {"val": val("1")})]
        assert (9, 0, {"val": val("1")}) in kvs(commit(op("a", val("1"))))
        assert len(kvs(commit(op("b", val("1"))))) == 1
        assert (9, Errno.ENOENT, "a: no such key") in kvs(commit(op("a", None)))

    def test_a_commit_that_comes_with_the_watch_is_told_once(self, kvs: FluxKvs) -> None:
        told = kvs(watch("a", WATCH | WAITCREATE), commit(op("a", val("1"))))
        assert [each for each in told if each[0] == 9] == [(9, 0, {"val": val("1")})]
        told = kvs(commit(op("a", val("2"))))
        assert [each for each in told if each[0] == 9] == [(9, 0, {"val": val("2")})]

    @pytest.mark.parametrize("flag", [64, 128])
    def test_only_another_value_is_told(self, kvs: FluxKvs, flag: int) -> None:
        kvs.put("a", "1")
        kvs(watch("a", 4 | flag))
        assert len(kvs(commit(op("a", val("1"))))) == 1
        assert (9, 0, {"val": val("2")}) in kvs(commit(op("a", val("2"))))

    def test_appends_are_told_and_a_put_ends_it(self, kvs: FluxKvs) -> None:
        kvs.put("a", "1")
        first = kvs(watch("a", 4 | 256 | 1024))
        assert first == [(9, 0, {"val": val("1")}), (9, 0, {})]
        assert (9, 0, {"val": val("2")}) in kvs(commit(op("a", val("2"), 32)))
        overwritten = "value of key watched with WATCH_APPEND overwritten"
        assert (9, Errno.EINVAL, overwritten) in kvs(commit(op("a", val("3"))))

    def test_a_stream_ends_after_the_value(self, kvs: FluxKvs) -> None:
        kvs.put("a", "1")
        assert kvs(watch("a", 512)) == [(9, 0, {"val": val("1")}), (9, Errno.ENODATA, None)]

    def test_a_key_or_a_namespace_is_waited_for(self, kvs: FluxKvs) -> None:
        assert kvs(watch("a", 8)) == []
        assert (9, 0, {"val": val("1")}) in kvs(commit(op("a", val("1"))))
        assert kvs(watch("a", 4)) != []
        assert kvs(watch("b", 4, tag=10))[0][1] == Errno.ENOENT
        assert kvs(watch("b", 4, tag=11, namespace="n"))[0][1] == Errno.ENOTSUP
        assert kvs(watch("b", 4 | 8, tag=12, namespace="n")) == []
        kvs(create("n"))
        assert (12, 0, {"val": val("1")}) in kvs(commit(op("b", val("1")), namespace="n"))
        removed = kvs(asked("kvs.namespace-remove", {"namespace": "n"}))
        assert (12, Errno.ENOTSUP, "n: the namespace was removed") in removed

    def test_a_directory_is_watched(self, kvs: FluxKvs) -> None:
        kvs.put("a.b", "1")
        kvs(watch("a", 4 | 1))
        told = kvs(commit(op("a.c", val("2"))))
        assert (9, 0, {"val": directory({"b": val("1"), "c": val("2")})}) in told

    def test_stats_count_the_watches_of_each_namespace_in_whose_words_ever(
        self, kvs: FluxKvs
    ) -> None:
        stats = asked_by_guest("kvs-watch.stats-get")
        assert kvs.one(stats) == (0, {"watchers": 0, "namespaces": {}, "namespace-count": 0})
        made = {"namespace": "job-1", "rootref": EMPTY_ROOT, "owner": GUEST, "flags": 0}
        kvs(asked("kvs.namespace-create", made))
        kvs.put("a", "1")
        kvs(watch("a", 4, tag=8))
        kvs(watch("exec.eventlog", 4 | 8, tag=9, namespace="job-1"))
        own = asked("store.watch", {"key": job_key(1, "guest.output")}, tag=10, streaming=True)
        kvs(own, watch("a", 4 | 8, tag=11, namespace="none"))
        _, told = kvs.one(stats)
        assert (told["watchers"], told["namespace-count"]) == (4, 2)
        counts = {name: each["watchers"] for name, each in told["namespaces"].items()}
        assert counts == {"job-1": 2, "primary": 1}  # one waits for its namespace
        assert told["namespaces"]["job-1"]["owner"] == GUEST

    def test_a_cancel_ends_it_and_a_peer_that_leaves_is_told_no_more(self, kvs: FluxKvs) -> None:
        kvs.put("a", "1")
        kvs(watch("a", 4))
        cancel = asked("kvs-watch.cancel", {"matchtag": 9}, tag=0)
        cancel = msgspec.structs.replace(cancel, flags=int(Flag.NORESPONSE))
        assert kvs(cancel) == [(9, Errno.ENODATA, None)]
        assert kvs(cancel) == []
        kvs(watch("a", 4))
        kvs(gone("kvs-watch", "alice"))
        assert len(kvs(commit(op("a", val("2"))))) == 1

    @pytest.mark.parametrize(
        ("flags", "errnum"),
        [
            (4 | 512, Errno.EINVAL),
            (64, Errno.EINVAL),
            (4 | 1024, Errno.EINVAL),
            (1 << 20, Errno.EPROTO),
        ],
    )
    def test_flags_that_do_not_go_together_are_refused(
        self, kvs: FluxKvs, flags: int, errnum: int
    ) -> None:
        assert kvs(watch("a", flags))[0][1] == errnum

    def test_a_watch_is_a_stream(self, kvs: FluxKvs) -> None:
        at = {"key": "a", "namespace": "primary", "flags": 4}
        errnum, text = kvs.one(asked("kvs-watch.lookup", at))
        assert errnum == Errno.EPROTO
        assert text == "KVS watch request rejected without streaming RPC flag"


class TestCommitsOfServicesInGuestNamespaces:
    """store.commit with `guests`: what the execution service writes at the places of jobs."""

    @staticmethod
    def write(*events: str, over: bool = False, jobs: tuple[int, ...] = (1,)) -> Request:
        ops = [
            ["append", job_key(job, "guest.exec.eventlog"), text] for job in jobs for text in events
        ]
        guests = [[job, GUEST, over] for job in jobs]
        return asked("store.commit", {"ops": ops, "guests": guests}, tag=5)

    def test_namespaces_are_made_with_the_first_events_and_removed_with_the_last(
        self, kvs: FluxKvs
    ) -> None:
        assert kvs.one(self.write("a", jobs=(1, 2))) == (0, {})
        assert kvs.get("exec.eventlog", namespace="job-1") == (0, {"val": val("a")})
        listed = kvs.one(asked("kvs.namespace-list"))[1]["namespaces"]
        assert [each["namespace"] for each in listed] == ["primary", "job-1", "job-2"]
        assert {each["owner"] for each in listed[1:]} == {GUEST}
        kvs.one(self.write("b", over=True))
        assert kvs.get("exec.eventlog", namespace="job-1")[0] == Errno.ENOTSUP
        assert kvs.get(job_key(1, "guest.exec.eventlog")) == (0, {"val": val("ab")})
        assert kvs.store.dir("kvs-namespace") == ["kvs-namespace.job-2", "kvs-namespace.primary"]

    def test_each_counts_as_a_commit_of_the_namespace_also_after_a_restart(
        self, kvs: FluxKvs
    ) -> None:
        kvs.one(self.write("a"))
        kvs.one(self.write("b"))
        wait = asked("kvs.wait-version", {"namespace": "job-1", "rootseq": 3}, tag=8)
        assert kvs(wait) == []
        assert [tag for tag, *_ in kvs(self.write("c"))] == [5, 8]
        after = FluxKvs(kvs.store)
        root = after.one(asked("kvs.getroot", {"namespace": "job-1"}))[1]
        assert (root["rootseq"], root["owner"]) == (3, GUEST)
        assert after.one(lookup("exec.eventlog", namespace=None, rootdir=dirref(root["rootref"])))

    def test_a_watch_is_told_what_was_there_last_before_it_ends(self, kvs: FluxKvs) -> None:
        kvs(watch("exec.eventlog", WATCH | WAITCREATE, namespace="job-1"))
        assert kvs(self.write("a")) == [(5, 0, {}), (9, 0, {"val": val("a")})]
        told = kvs(self.write("b", over=True))
        assert [each[:2] for each in told] == [(5, 0), (9, 0), (9, Errno.ENOTSUP)]
        assert told[1][2] == {"val": val("ab")}

    def test_output_goes_on_in_pieces_and_its_bytes_count(self, kvs: FluxKvs) -> None:
        long = "x" * PIECE_CHARS
        for text in (long, "y"):
            ops = [["append", job_key(1, "guest.output"), text]]
            kvs.one(asked("store.commit", {"ops": ops, "guests": [[1, GUEST, False]]}))
        assert kvs.get(OUTPUT_1) == (0, {"val": val("y")})
        assert kvs.get("output", namespace="job-1") == (0, {"val": val(f"{long}y")})
        told = [sent["nbytes"] for topic, sent in kvs.sent if topic == topics.JOB_STORED]
        assert told[-1] > PIECE_CHARS
