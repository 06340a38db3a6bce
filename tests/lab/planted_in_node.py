"""Mistakes to plant in docs/howto/any-language/fifo.js, as `planted_in_python` has them of fifo.py.

All of them were thought of with the page and the RFCs alone.
"""

# ruff: noqa: E501  (lines of another language)

from __future__ import annotations

from typing import Final

from tests.lab.planted import DOUBLE, Row

ROWS: Final = (
    Row(
        "cancel",
        "a canceled request is answered with SUCCESS",
        "    answer(job, CANCEL);\n",
        "    answer(job, SUCCESS);\n",
        "27.success.1",
    ),
    Row(
        "cancel",
        "a cancel that comes too late frees the cores of the job",
        "    if (!job) return; // it has its answer\n    if (granting.delete(id)) free(id);\n",
        "    granting.delete(id);\n    free(id);\n    if (!job) return; // it has its answer\n",
        DOUBLE,
    ),
    Row(
        "double",
        "cores are taken when R has been stored",
        "  take(job.id, cut);\n"
        "  granting.set(job.id, job);\n"
        "  const text = JSON.stringify(resourceSet(cut, job.spec));\n"
        '  flux.call("kvs.commit", { ops: [["put", keyOf(job.id), text]] }) // before the answer\n'
        "    .then(() => {\n"
        "      if (granting.get(job.id) !== job) return; // it was canceled meanwhile\n"
        "      granting.delete(job.id);\n",
        "  granting.set(job.id, job);\n"
        "  const text = JSON.stringify(resourceSet(cut, job.spec));\n"
        '  flux.call("kvs.commit", { ops: [["put", keyOf(job.id), text]] }) // before the answer\n'
        "    .then(() => {\n"
        "      if (granting.get(job.id) !== job) return; // it was canceled meanwhile\n"
        "      granting.delete(job.id);\n"
        "      take(job.id, cut);\n",
        DOUBLE,
    ),
    Row(
        "deny",
        "only the total of cores is looked at",
        "  if (place(job.spec, (node) => node.cores)) return false;\n",
        "  const { nnodes, slots, cores } = job.spec;\n"
        "  const total = [...nodes.values()].reduce((sum, node) => sum + node.cores.length, 0);\n"
        "  if ((nnodes || 1) * slots * cores <= total) return false;\n",
        "27.deny.1",
    ),
    Row(
        "early",
        "the first node of a job alone is freed",
        "    if (nodes.has(rank)) release(rank);\n",
        "    if (nodes.has(rank)) return release(rank);\n",
        "27.free.5",
    ),
    Row(
        "early",
        "cores are free when the time limit has passed",
        "      granting.delete(job.id);\n      answer(job, SUCCESS);\n",
        "      granting.delete(job.id);\n"
        "      answer(job, SUCCESS);\n"
        "      const { duration } = job.spec;\n"
        "      if (duration) setTimeout(() => (free(job.id), schedule()), duration * 1000);\n",
        DOUBLE,
    ),
    Row(
        "hello",
        "what hello tells is not taken",
        "    take(id, new Map(entries));\n",
        "    given.set(id, new Map(entries));\n",
        "27.hello.12",
    ),
    Row(
        "deny",
        "nothing is denied",
        "    const job = { request, id, priority, t_submit, spec };\n"
        "    if (!denied(job)) queue.push(job);\n",
        "    const job = { request, id, priority, t_submit, spec };\n    queue.push(job);\n",
        "27.deny.1",
    ),
    Row(
        "offline",
        "offline is not heard",
        '      if (message.type === "offline") targets.forEach((rank) => (nodes.get(rank).up = false));\n',
        "",
        "28.offline.3",
    ),
    Row(
        "offline",
        "a node with a job is not taken to be offline",
        '      if (message.type === "offline") targets.forEach((rank) => (nodes.get(rank).up = false));\n',
        '      if (message.type === "offline") {\n'
        "        for (const rank of targets) {\n"
        "          const node = nodes.get(rank);\n"
        "          if (node.free.size === node.cores.length) node.up = false; // else its jobs go on\n"
        "        }\n"
        "      }\n",
        "28.offline.3",
    ),
    Row(
        "slow",
        "it looks at the queue after a minute",
        '  else if (request.matchtag) flux.respond(request, "not here", ENOSYS);\n  schedule();\n',
        '  else if (request.matchtag) flux.respond(request, "not here", ENOSYS);\n'
        "  setTimeout(schedule, 60000);\n",
        "27.alloc.12",
    ),
    Row(
        "prioritize",
        "the new priority is that of a copy",
        "      const job = queue.find((each) => each.id === id);\n"
        "      if (job) job.priority = priority;\n",
        "      const job = { ...queue.find((each) => each.id === id) };\n"
        "      if (job.id) job.priority = priority;\n",
        "27.prioritize.6",
    ),
    Row(
        "shrink",
        "a node is released while its job runs",
        "  if (node.here || node.free.size < node.cores.length) return;\n",
        "  if (node.here) return;\n",
        "28.shrink.6",
    ),
    Row(
        "shrink",
        "the exception is refused, since it has no severity",
        '    flux.call("job-manager.raise", { id, severity: 0, type: "alloc", note }).catch(() => {});\n',
        '    flux.call("job-manager.raise", { id, type: "alloc", note }).catch(() => {});\n',
        "28.shrink.4",
    ),
    Row(
        "order",
        "the queue is sorted by a comparison that is true or false",
        "  queue.sort((a, b) => b.priority - a.priority || a.t_submit - b.t_submit || (a.id < b.id ? -1 : 1));\n",
        "  queue.sort((a, b) => b.priority > a.priority);\n",
        "27.prioritize.6",
    ),
)
