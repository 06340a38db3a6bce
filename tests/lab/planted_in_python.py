"""Mistakes to plant in docs/howto/any-language/fifo.py: what is right, what takes its place, and
the clause that an exercise has to name. Those that are BLIND were thought of with the RFCs alone,
before anybody looked at what an exercise does.
"""

from __future__ import annotations

from typing import Final

from flux_trio.lab.exercise import UNHARMED
from tests.lab.planted import DOUBLE, Row

FREE_NOW: Final = "usable = node.free if node.up else set()"
TAKES: Final = "                self.nodes[rank].free -= set(cores)\n"
FREED: Final = '                self.respond(request, {"id": payload["id"]})\n'
STORES: Final = (
    '        await self.insist(topics.KVS_COMMIT, {"ops": [put]})  # before the answer\n'
)
SUCCEEDS: Final = "            self.answer(job, SUCCESS)\n"
RAISES: Final = "                self.nursery.start_soon(self.tell, topics.JOB_RAISE, failure)\n"
CANCELS: Final = "            self.answer(job, CANCEL)\n"
HELLO_LOOP: Final = "        for jobid in jobids:\n"
QUEUES: Final = "                    self.queue.append(job)\n"
LARGE: Final = (
    "                found[rank] = here if job.exclusive else here[: job.slots * job.cores]\n"
)
DENIED: Final = "invariant.denied-although-satisfiable"
ENDED_IF: Final = "            if cut.keys() & set(targets):\n"
JUDGED_ANEW: Final = (
    "            if not self.denied(job):\n                self.queue.append(job)\n\n"
)
PAIRS: Final = '                for jobid, priority in payload["jobs"]:\n'
ONLINE: Final = (
    "                for rank in targets:\n                    self.nodes[rank].up = True\n"
    "            case"
)
NSLOTS: Final = '"nslots": job.slots * (job.nnodes or 1),'
SORTED: Final = "key=lambda job: (-job.priority, job.t_submit, job.id)"

ROWS: Final = (
    Row("offline", "offline is not heard", "self.nodes[rank].up = False", "pass", "28.offline.3"),
    Row(
        "offline",
        "nobody asks whether a node is up",
        FREE_NOW,
        "usable = node.free",
        "28.offline.3",
    ),
    Row(
        "offline",
        "what the first grow says is offline is taken to be up",
        'Idset.parse(change["online"])',
        "[rank for rank, _ in ranks]",
        "28.offline.3",
    ),
    Row(
        "offline",
        "only the first of the offline targets is heard",
        "                for rank in targets:\n                    self.nodes[rank].up = False",
        "                for rank in targets[:0]:\n                    self.nodes[rank].up = False",
        "28.offline.3",
    ),
    Row(
        "online",
        "online is not heard",
        "                    self.nodes[rank].up = True\n            case",
        "                    pass\n            case",
        "28.online.3",
    ),
    Row(
        "prioritize",
        "new priorities are ignored",
        "job.priority = priority",
        "pass",
        "27.prioritize.6",
    ),
    Row(
        "prioritize",
        "a priority is raised and never lowered",
        "job.priority = priority",
        "job.priority = max(job.priority, priority)",
        "27.prioritize.6",
    ),
    Row(
        "prioritize",
        "priorities are no part of the order",
        SORTED,
        "key=lambda job: (job.t_submit, job.id)",
        "27.prioritize.6",
    ),
    Row(
        "hello",
        "what hello tells is not taken",
        "            self.take(jobid, cut)\n\n",
        "            pass\n\n",
        "27.hello.12",
    ),
    Row(
        "hello",
        "the first job of hello alone is taken",
        HELLO_LOOP,
        "        for jobid in jobids[:1]:\n",
        "27.hello.12",
    ),
    Row(
        "hello",
        "the first rank of each R alone is taken",
        "                for entry in entries\n                for",
        "                for entry in entries[:1]\n                for",
        "27.hello.12",
    ),
    Row("double", "what is given stays free", TAKES, "                pass\n", DOUBLE),
    Row(
        "double",
        "one core of what is given is not free",
        TAKES,
        "                self.nodes[rank].free -= set(cores[:1])\n",
        DOUBLE,
    ),
    Row("shrink", "nothing is raised", RAISES, "                pass\n", "28.shrink.4"),
    Row("shrink", "what is raised is not fatal", '"severity": 0', '"severity": 1', "28.shrink.4"),
    Row(
        "shrink",
        "shrink is not heard",
        "                self.shrink(targets)\n",
        "                pass\n",
        "28.shrink.4",
    ),
    Row(
        "shrink",
        "a node is released while its job runs",
        "if not node.here and len(node.free) == len(node.cores):",
        "if not node.here:",
        "28.shrink.6",
    ),
    Row(
        "shrink",
        "no node is released",
        "self.nursery.start_soon(self.insist, topics.RESOURCE_RELEASE, released)",
        "pass",
        "28.release.1",
    ),
    Row(
        "shrink",
        "the release names another group",
        '{"group": GROUP, "targets": str(rank)}',
        '{"group": "other", "targets": str(rank)}',
        "28.release.5",
    ),
    Row(
        "early",
        "cores are free as soon as they are given",
        SUCCEEDS,
        SUCCEEDS + "            self.free(job.id)\n",
        DOUBLE,
    ),
    Row(
        "early",
        "offline frees the cores of a node",
        "self.nodes[rank].up = False",
        "self.nodes[rank].up = False; self.nodes[rank].free = set(self.nodes[rank].cores)",
        DOUBLE,
    ),
    Row(
        "early",
        "the end of one job frees all",
        '                self.free(payload["id"])\n',
        "                for each in list(self.given): self.free(each)\n",
        DOUBLE,
    ),
    Row(
        "deny",
        "nothing is denied",
        "        if self.place(job, now=False):\n",
        "        if True:\n",
        "27.deny.1",
    ),
    Row(
        "deny",
        "only a job on too many nodes is denied",
        "        if self.place(job, now=False):\n",
        "        if job.nnodes <= len(self.nodes):\n",
        "27.deny.1",
    ),
    Row(
        "deny",
        "what does not fit now is denied",
        "        if self.place(job, now=False):\n",
        "        if self.place(job, now=True):\n",
        DENIED,
    ),
    Row(
        "cancel",
        "a cancel is answered with SUCCESS",
        CANCELS,
        "            self.answer(job, SUCCESS)\n",
        "27.success.1",
    ),
    Row(
        "cancel",
        "a cancel is answered with DENY",
        CANCELS,
        "            self.answer(job, DENY)\n",
        DENIED,
    ),
    Row("cancel", "a cancel is never answered", CANCELS, "            pass\n", "27.alloccancel.1"),
    Row(
        "cancel",
        "CANCEL has a note",
        CANCELS,
        '            self.answer(job, CANCEL, note="canceled")\n',
        "27.alloccancel.2",
    ),
    Row(
        "half",
        "half of the nodes of a large job are given",
        LARGE,
        LARGE
        + "                if len(found) * 2 >= job.nnodes:\n                    return found\n",
        "25.resources.7",
    ),
    Row(
        "half",
        "half of the cores of a large job are given",
        LARGE,
        "                found[rank] = here[: max(1, len(here) // 2)]\n",
        "25.resources.7",
    ),
    Row(
        "order",
        "the last one that was submitted starts first",
        SORTED,
        "key=lambda job: (-job.priority, -job.t_submit, -job.id)",
        "order.fifo",
    ),
    Row(
        "order",
        "jobs of one priority start by their size",
        SORTED,
        "key=lambda job: (-job.priority, -job.id % 7)",
        "order.fifo",
    ),
    Row(
        "slow",
        "answers take a minute",
        STORES,
        "        await trio.sleep(60)\n" + STORES,
        "27.alloc.12",
    ),
    Row(
        "slow",
        "a free takes a minute",
        FREED,
        "                async def later(request: Request = request) -> None:\n"
        "                    await trio.sleep(60)\n"
        '                    self.respond(request, {"id": request.payload["id"]})\n\n'
        "                self.nursery.start_soon(later)\n",
        "27.free.6",
    ),
    Row(
        "answers",
        "R is not stored",
        '        await self.insist(topics.KVS_COMMIT, {"ops": [put]})  # before the answer\n',
        "        await trio.lowlevel.checkpoint()\n",
        "27.success.1",
        False,
    ),
    Row("answers", "a free is not answered", FREED, "", "27.free.6"),
    Row(
        "answers",
        "the answer to a free has no id",
        'self.respond(request, {"id": payload["id"]})',
        "self.respond(request, {})",
        "27.free.7",
    ),
    Row("answers", "SUCCESS is sent twice", SUCCEEDS, 2 * SUCCEEDS, "27.success.8"),
    Row(
        "answers",
        "every second request is forgotten",
        QUEUES,
        "                    if len(self.given) % 2 == 0:\n    " + QUEUES,
        "27.alloc.12",
        False,
    ),
    Row(
        "start",
        "it stays when acquire is refused",
        '            raise Leave(f"{topics.RESOURCE_ACQUIRE}: {error}") from None',
        "            await trio.sleep_forever()",
        "28.error.2",
    ),
    Row(
        "start",
        "it stays when hello is refused",
        '            raise Leave(f"{topics.SCHED_HELLO}: {error}") from None',
        "            await trio.sleep_forever()",
        "27.hello.17",
    ),
    Row(
        "start",
        "it stays when anything is refused",
        '            raise Leave(f"{topic}: {error}") from None',
        "            await trio.sleep_forever()",
        "27.ready.15",
    ),
    Row(
        "bystanders",
        "a node that is taken away ends all jobs",
        ENDED_IF,
        "            if True:\n",
        UNHARMED,
    ),
    Row(
        "bystanders",
        "of several jobs on a node that is taken away one is ended",
        RAISES,
        RAISES + "                break\n",
        "28.shrink.4",
        False,
    ),
    Row(
        "bystanders",
        "a job is ended if all of its nodes are taken away",
        ENDED_IF,
        "            if cut.keys() <= set(targets):\n",
        "28.shrink.4",
        False,
    ),
    Row(
        "bystanders",
        "a node that is taken away denies all that waits",
        JUDGED_ANEW,
        "            self.answer(job, DENY)\n\n",
        "28.criteria.3",
        False,
    ),
    Row(
        "bystanders",
        "a cancel takes the head of the queue",
        "        job = next((job for job in self.queue if job.id == jobid), None)\n",
        "        job = next(iter(self.queue), None)\n",
        "27.alloc.11",
        False,
    ),
    Row(
        "bystanders",
        "waiting jobs are denied when a node is drained",
        "                    self.nodes[rank].up = False",
        "                    self.nodes[rank].up = False\n"
        "                for job in self.queue[:]:\n"
        "                    if not self.place(job, now=True):\n"
        "                        self.queue.remove(job)\n"
        "                        self.answer(job, DENY)",
        "28.criteria.3",
        False,
    ),
    Row(
        "lists",
        "the first pair of new priorities alone is heard",
        PAIRS,
        PAIRS.replace('"]:', '"][:1]:'),
        "27.prioritize.6",
    ),
    Row(
        "lists",
        "the last pair of new priorities is not heard",
        PAIRS,
        PAIRS.replace('"]:', '"][:-1] or payload["jobs"]:'),
        "27.prioritize.6",
        False,
    ),
    Row(
        "lists",
        "new priorities behind that of an unknown job are not heard",
        PAIRS,
        PAIRS
        + "                    if jobid not in [job.id for job in self.queue]:\n"
        + "                        break\n",
        "27.prioritize.6",
        False,
    ),
    Row(
        "lists",
        "the last of the offline targets is not heard",
        "                for rank in targets:\n                    self.nodes[rank].up = False",
        "                for rank in targets[:-1] or targets:\n"
        "                    self.nodes[rank].up = False",
        "28.offline.3",
        False,
    ),
    Row(
        "lists",
        "the last of the online targets is not heard",
        ONLINE,
        ONLINE.replace("in targets:", "in targets[:-1] or targets:"),
        "28.online.3",
        False,
    ),
    Row(
        "lists",
        "the first target that is taken away alone is heard",
        "                self.shrink(targets)\n",
        "                self.shrink(targets[:1])\n",
        "28.shrink.4",
        False,
    ),
    Row(
        "lists",
        "the last job of hello alone is taken",
        HELLO_LOOP,
        "        for jobid in jobids[-1:]:\n",
        "27.hello.12",
        False,
    ),
    Row(
        "lists",
        "the first rank of each entry of R alone is taken",
        '                for rank in Idset.parse(entry["rank"])\n            }',
        '                for rank in list(Idset.parse(entry["rank"]))[:1]\n            }',
        "27.hello.12",
        False,
    ),
    Row(
        "lists",
        "hosts go by the order of entries",
        "        ranks = sorted(\n",
        "        ranks = list(\n",
        "20.nodelist.3",
        False,
    ),
    Row(
        "numbers",
        "new priorities are of 32 bits with a sign",
        "job.priority = priority",
        "job.priority = (priority + 2**31) % 2**32 - 2**31",
        "27.prioritize.6",
    ),
    Row(
        "numbers",
        "priorities are of 32 bits with a sign",
        '        payload["priority"],\n',
        '        (payload["priority"] + 2**31) % 2**32 - 2**31,\n',
        "27.prioritize.6",
    ),
    Row(
        "numbers",
        "ids of requests are doubles",
        '        request,\n        payload["id"],',
        '        request,\n        int(float(payload["id"])),',
        "27.success.8",
    ),
    Row(
        "numbers",
        "ids of new priorities are doubles",
        "                        if job.id == jobid:\n",
        "                        if job.id == int(float(jobid)):\n",
        "27.prioritize.6",
    ),
    Row(
        "numbers",
        "ids of hello are doubles",
        '                jobids = [each["id"] async',
        '                jobids = [int(float(each["id"])) async',
        "27.hello.12",
    ),
    Row(
        "numbers",
        "cores are numbered from 0",
        '                rank: list(Idset.parse(entry["children"]["core"]))\n',
        '                rank: list(range(len(Idset.parse(entry["children"]["core"]))))\n',
        "27.hello.12",
        False,
    ),
    Row(
        "numbers",
        "numbers in hosts have no zeros in front",
        "[self.nodes[rank].host for rank in cut]",
        '[self.nodes[rank].host.replace("node0", "node") for rank in cut]',
        "20.nodelist.3",
        False,
    ),
    Row(
        "numbers",
        "large requests are dropped",
        "            case topics.SCHED_ALLOC:\n",
        "            case topics.SCHED_ALLOC if len(str(payload)) > 65535:\n"
        "                pass\n"
        "            case topics.SCHED_ALLOC:\n",
        "27.alloc.12",
        False,
    ),
    Row("numbers", "nslots is that of a node", NSLOTS, '"nslots": job.slots,', "20.nslots.1"),
    Row(
        "limits",
        "a job on all cores is denied",
        "            if not missing:\n",
        "            if not missing and (\n"
        "                now\n"
        "                or sum(map(len, found.values()))\n"
        "                < sum(len(each.cores) for each in self.nodes.values())\n"
        "            ):\n",
        DENIED,
        False,
    ),
    Row(
        "limits",
        "a job on one core too many waits",
        "        if self.place(job, now=False):\n",
        "        if self.place(job, now=False) or job.slots == 17:\n",
        "27.deny.1",
        False,
    ),
    Row(
        "limits",
        "nodes that are down do not count for what is possible",
        "if node.here else []",
        "if node.here and node.up else []",
        "28.criteria.3",
        False,
    ),
    Row(
        "refused",
        "an R that could not be stored is granted",
        "        await self.insist(topics.KVS_COMMIT",
        "        await self.tell(topics.KVS_COMMIT",
        "27.success.1",
    ),
    Row(
        "refused",
        "a job whose R cannot be read has nothing",
        '            found = await self.insist(topics.KVS_LOOKUP, {"key": job_key(jobid, "R")})\n',
        "            try:\n"
        "                found = await self.handle.call(\n"
        '                    topics.KVS_LOOKUP, {"key": job_key(jobid, "R")}\n'
        "                )\n"
        "            except FluxError:\n"
        "                continue\n",
        "27.hello.12",
        False,
    ),
    Row(
        "waited",
        "the end is counted from the submission",
        '"expiration": starttime + job.duration if',
        '"expiration": job.t_submit + job.duration if',
        "14.attributes.2",
    ),
    Row(
        "waited",
        "start and end are counted from the submission",
        "        starttime = self.handle.now()\n",
        "        starttime = job.t_submit\n",
        "14.attributes.2",
        False,
    ),
    Row(
        "waited",
        "what has waited is not looked at when it overtakes",
        "        self.queue.sort(key=lambda job: (-job.priority, job.t_submit, job.id))\n",
        '        if self.__dict__.setdefault("n", 0) != len(self.queue):\n'
        "            self.queue.sort(key=lambda job: (-job.priority, job.t_submit, job.id))\n"
        '        self.__dict__["n"] = len(self.queue)\n',
        "27.prioritize.6",
        False,
    ),
    Row(
        "restart",
        "a job on a node that is down does not count at hello",
        "            if rank in self.nodes:\n" + TAKES,
        "            if rank in self.nodes and self.nodes[rank].up:\n" + TAKES,
        "27.hello.12",
    ),
    Row(
        "restart",
        "the end of a job on a node that is down frees nothing",
        "            if rank in self.nodes:\n                self.nodes[rank].free |=",
        "            if rank in self.nodes and self.nodes[rank].up:\n"
        "                self.nodes[rank].free |=",
        "28.online.3",
        False,
    ),
)
