"""A kvs that answers as flux-core's does: namespaces, links, treeobjs. For tests of its clients."""

from __future__ import annotations

import base64
from typing import Any

from flux_trio.messages import Errno, Request, Response

TREEOBJ, APPEND = 16, 32


class FluxKvs:
    """`spaces` has the text of each key, by namespace; a link is the name of a namespace.

    `errors` makes the next request of a topic fail. Once a room has its last event, requests of the
    topic `dies_at` are done and not answered: whoever has asked is dead.
    """

    def __init__(self) -> None:
        self.spaces: dict[str, dict[str, str]] = {"primary": {}}
        self.links: dict[str, str] = {}
        self.owners: dict[str, int] = {"primary": 0}
        self.roots: dict[str, dict[str, str]] = {}
        self.errors: dict[str, tuple[int, str]] = {}
        self.requests: list[tuple[str, Any]] = []
        self.dies_at = ""

    def answer(self, request: Request) -> Response | None:
        payload: Any = request.payload
        self.requests.append((request.topic, payload))
        found: Any = {}
        errnum = 0
        try:
            if error := self.errors.pop(request.topic, None):
                raise _Error(*error)
            method = request.topic.partition(".")[2].replace("-", "_")
            found = getattr(self, f"_{method}")(**payload or {})
        except _Error as error:
            errnum, found = error.args
        if request.topic == self.dies_at and '"done"' in str(self.spaces):
            return None
        return Response(request.topic, found, errnum, request.matchtag)

    def _lookup(self, key: str, namespace: str, flags: int) -> Any:
        space = self._space(namespace)
        if key in self.links and flags & TREEOBJ:
            return _val("symlink", {"namespace": self.links[key], "target": "."})
        if any(each.startswith(f"{key}.") for each in space):
            if flags & TREEOBJ:
                return _val("dirref", ["sha1-there"])
            raise _Error(21, None)
        for link, target in self.links.items():
            if key.startswith(f"{link}."):
                return self._lookup(key.removeprefix(f"{link}."), target, flags)
        if key not in space:
            raise _Error(int(Errno.ENOENT), None)
        return _val("val", base64.b64encode(space[key].encode()).decode())

    def _getroot(self, namespace: str, flags: int = 0) -> Any:
        blobref = f"sha1-{len(self.roots)}"
        self.roots[blobref] = dict(self._space(namespace))
        owner = self.owners[namespace]
        return {
            "owner": owner,
            "rootseq": len(self.roots),
            "rootref": blobref,
            "flags": 0,
            "namespace": namespace,
        }

    def _commit(self, namespace: str, flags: int, ops: list[Any]) -> Any:
        assert not flags
        for op in ops:
            self._do(self._space(namespace), op["key"], op["flags"], op["dirent"])
        return {"rootref": "sha1-x", "rootseq": 1}

    def _do(self, space: dict[str, str], key: str, flags: int, dirent: Any) -> None:
        self.links.pop(key, None)
        match dirent:
            case None:
                space.pop(key, None)
            case {"type": "symlink", "data": data}:
                self.links[key] = data["namespace"]
            case {"type": "dirref", "data": [blobref]}:
                space |= {f"{key}.{name}": text for name, text in self.roots[blobref].items()}
            case {"type": "val", "data": data}:
                before = space.get(key, "") if flags & APPEND else ""
                space[key] = before + base64.b64decode(data).decode()

    def _namespace_create(self, namespace: str, rootref: str, owner: int, flags: int) -> None:
        assert rootref.startswith("sha1-")
        assert not flags
        if namespace in self.spaces:
            raise _Error(int(Errno.EEXIST), None)
        self.spaces[namespace] = {}
        self.owners[namespace] = owner

    def _namespace_remove(self, namespace: str) -> None:
        self._space(namespace)
        del self.spaces[namespace]

    def _namespace_list(self) -> Any:
        names = [{"namespace": name, "owner": 0, "flags": 0} for name in self.spaces]
        return {"namespaces": names}

    def _space(self, namespace: str) -> dict[str, str]:
        if namespace not in self.spaces:
            raise _Error(95, None)
        return self.spaces[namespace]


class _Error(Exception):
    """An errnum and a text, as the answer."""


def _val(kind: str, data: Any) -> dict[str, Any]:
    return {"val": {"ver": 1, "type": kind, "data": data}}
