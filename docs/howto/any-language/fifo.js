// A FIFO scheduler for flux-trio: RFC 27 and RFC 28 on one page. `node fifo.js` inside an instance
// whose own scheduler was removed (`flux-trio module remove sched`).
"use strict";

const { Flux, ENOSYS } = require("./flux.js");

const SUCCESS = 0, DENY = 2, CANCEL = 3;
const GROUP = "default";

const nodes = new Map(); // rank: {host, cores: all, free: not allocated, up, here: not shrunk}
const queue = []; // {request, id, priority, t_submit, spec}, highest priority first
const given = new Map(); // job id: Map of rank to cores
const granting = new Map(); // job id: job whose R is being stored
let flux;

// --- sets: "0-3,7"; hosts: node[0-3,7],login

function members(idset) {
  return idset.split(",").filter(Boolean).flatMap((part) => {
    const [first, last = first] = part.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, at) => first + at);
  });
}

function idset(numbers) {
  return [...numbers].sort((a, b) => a - b).join(",");
}

function hosts(hostlist) {
  return hostlist.match(/[^,[]+(\[[^\]]*\])?/g).flatMap((part) => {
    const [, prefix, numbers] = part.match(/^(.*)\[(.*)\]$/) ?? [];
    if (numbers === undefined) return [part];
    const width = numbers.match(/^\d+/)[0].length;
    return members(numbers).map((number) => prefix + String(number).padStart(width, "0"));
  });
}

// --- resources

function grow({ resources, online }) {
  const names = resources.execution.nodelist.flatMap(hosts);
  const ranks = resources.execution.R_lite.flatMap(({ rank, children }) =>
    members(rank).map((each) => [each, members(children.core)]));
  ranks.sort(([a], [b]) => a - b).forEach(([rank, cores], at) => {
    const known = nodes.get(rank);
    if (!known?.here) {
      const free = new Set(cores);
      for (const cut of given.values()) cut.get(rank)?.forEach((core) => free.delete(core));
      nodes.set(rank, { host: names[at], cores, free, up: false, here: true });
    }
  });
  for (const rank of members(online ?? "")) nodes.get(rank).up = true;
}

// Nodes that are taken away: their jobs end, and each node is released when it is free.
function shrink(targets) {
  for (const rank of targets) nodes.get(rank).here = false;
  for (const [id, cut] of given) {
    if (!targets.some((rank) => cut.has(rank))) continue;
    const note = "a node of the job was taken away";
    flux.call("job-manager.raise", { id, severity: 0, type: "alloc", note }).catch(() => {});
  }
  targets.forEach(release);
  for (const job of queue.splice(0)) if (!denied(job)) queue.push(job);
}

function release(rank) {
  const node = nodes.get(rank);
  if (node.here || node.free.size < node.cores.length) return;
  nodes.delete(rank);
  flux.call("resource.release", { group: GROUP, targets: String(rank) }).catch(leave);
}

// --- what a job asks for

// Return {nnodes, exclusive, slots, cores}: slots on each node, or in all if nnodes is 0.
function shape(jobspec) {
  const [outer] = jobspec.resources;
  const slot = outer.type === "node" ? outer.with[0] : outer;
  const cores = slot.with.find(({ type }) => type === "core")?.count ?? 1;
  const nnodes = outer.type === "node" ? outer.count : 0;
  return { nnodes, exclusive: outer.exclusive === true, slots: slot.count, cores };
}

// Return a Map of rank to cores, or null if the job does not fit. `free(node)` are the cores.
function place({ nnodes, exclusive, slots, cores }, free) {
  const found = new Map();
  let missing = nnodes || slots;
  for (const [rank, node] of nodes) {
    const here = node.here ? free(node) : [];
    if (nnodes) {
      const whole = !exclusive || here.length === node.cores.length;
      if (!whole || here.length < slots * cores) continue;
      found.set(rank, exclusive ? here : here.slice(0, slots * cores));
      missing -= 1;
    } else {
      const fits = Math.min(missing, Math.floor(here.length / cores));
      if (fits) found.set(rank, here.slice(0, fits * cores));
      missing -= fits;
    }
    if (!missing) return found;
  }
  return null;
}

function resourceSet(cut, job) {
  const starttime = Date.now() / 1000;
  const entries = [...cut].sort(([a], [b]) => a - b);
  return {
    version: 1,
    execution: {
      R_lite: entries.map(([rank, cores]) =>
        ({ rank: String(rank), children: { core: idset(cores) } })),
      nodelist: entries.map(([rank]) => nodes.get(rank).host),
      nslots: job.nnodes ? job.nnodes * job.slots : job.slots,
      starttime,
      expiration: job.duration ? starttime + job.duration : 0,
    },
  };
}

// --- jobs

function denied(job) {
  if (place(job.spec, (node) => node.cores)) return false;
  answer(job, DENY, { note: "the machine is too small for this job" });
  return true;
}

function answer(job, type, more = {}) {
  flux.respond(job.request, { id: job.id, type, ...more });
}

// Answer from the head of the queue on, as far as jobs fit.
function schedule() {
  queue.sort((a, b) => b.priority - a.priority || a.t_submit - b.t_submit || (a.id < b.id ? -1 : 1));
  while (queue.length) {
    const cut = place(queue[0].spec, (node) => (node.up ? [...node.free] : []));
    if (!cut) return;
    grant(queue.shift(), cut);
  }
}

// The key of a job's R: its id as 16 hex digits in groups of four (RFC 19).
function keyOf(id) {
  return `job.${BigInt(id).toString(16).padStart(16, "0").match(/..../g).join(".")}.R`;
}

function grant(job, cut) {
  take(job.id, cut);
  granting.set(job.id, job);
  const text = JSON.stringify(resourceSet(cut, job.spec));
  flux.call("kvs.commit", { ops: [["put", keyOf(job.id), text]] }) // before the answer
    .then(() => {
      if (granting.get(job.id) !== job) return; // it was canceled meanwhile
      granting.delete(job.id);
      answer(job, SUCCESS);
    })
    .catch(leave);
}

function take(id, cut) {
  given.set(id, cut);
  for (const [rank, cores] of cut) cores.forEach((core) => nodes.get(rank)?.free.delete(core));
}

function free(id) {
  const cut = given.get(id) ?? new Map();
  given.delete(id);
  for (const [rank, cores] of cut) {
    cores.forEach((core) => nodes.get(rank)?.free.add(core));
    if (nodes.has(rank)) release(rank);
  }
}

const methods = {
  "sched.alloc"(request, { id, priority, t_submit, jobspec }) {
    const spec = { ...shape(jobspec), duration: jobspec.attributes.system?.duration ?? 0 };
    const job = { request, id, priority, t_submit, spec };
    if (!denied(job)) queue.push(job);
  },
  "sched.cancel"(request, { id }) {
    const at = queue.findIndex((job) => job.id === id);
    const job = at >= 0 ? queue.splice(at, 1)[0] : granting.get(id);
    if (!job) return; // it has its answer
    if (granting.delete(id)) free(id);
    answer(job, CANCEL);
  },
  "sched.prioritize"(request, { jobs }) {
    for (const [id, priority] of jobs) {
      const job = queue.find((each) => each.id === id);
      if (job) job.priority = priority;
    }
  },
  "sched.expiration"(request) {
    flux.respond(request, null); // nothing here depends on it
  },
  "sched.free"(request, { id }) {
    free(id);
    flux.respond(request, { id });
  },
};

function onRequest(request) {
  const method = methods[request.topic];
  if (method) method(request, request.payload);
  else if (request.matchtag) flux.respond(request, "not here", ENOSYS);
  schedule();
}

// --- the order of a start (RFC 27, Hello): acquire, the first grow, hello to its end, ready

function acquire() {
  return new Promise((resolve, reject) => {
    flux.stream("resource.acquire", { group: GROUP }, (message) => {
      if (message.resources) grow(message);
      const targets = members(message.targets ?? "");
      if (message.type === "shrink") shrink(targets);
      if (message.type === "online") targets.forEach((rank) => (nodes.get(rank).up = true));
      if (message.type === "offline") targets.forEach((rank) => (nodes.get(rank).up = false));
      resolve();
      schedule();
    }).catch((error) => (reject(error), leave(error)));
  });
}

async function hello() {
  const ids = [];
  await flux.stream("job-manager.sched-hello", null, ({ id }) => ids.push(id));
  for (const id of ids) {
    const { value } = await flux.call("kvs.lookup", { key: keyOf(id) });
    const entries = JSON.parse(value).execution.R_lite.flatMap(({ rank, children }) =>
      members(rank).map((each) => [each, members(children.core)]));
    take(id, new Map(entries));
  }
}

function leave(error) {
  console.error(error.message);
  process.exit(1);
}

async function main() {
  const { FLUX_TRIO_URI: uri, FLUX_TRIO_TOKEN: token } = process.env;
  flux = await Flux.connect(uri, token, onRequest);
  await flux.call("broker.register", { service: "sched" });
  await acquire();
  await hello();
  const limit = Number(process.argv[2] ?? 0);
  const mode = limit ? { mode: "limited", limit } : { mode: "unlimited" };
  await flux.call("job-manager.sched-ready", mode);
}

main().catch(leave);
