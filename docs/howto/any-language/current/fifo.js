// A FIFO scheduler, of the edition current: RFC 27 and RFC 28 on one page. `node fifo.js` inside an
// instance whose own scheduler was removed (`flux-trio module remove sched`).
"use strict";

const { Flux, ENOSYS } = require("../flux.js");

const SUCCESS = 0, DENY = 2, CANCEL = 3;

const nodes = new Map(); // rank: {host, cores: all, free: not allocated, up}
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
    return numbers.split(",").flatMap((range) => { // each has its own width
      const width = range.match(/^\d+/)[0].length;
      return members(range).map((number) => prefix + String(number).padStart(width, "0"));
    });
  });
}

// --- resources

function inventory({ execution }) {
  const names = execution.nodelist.flatMap(hosts);
  const ranks = execution.R_lite.flatMap(({ rank, children }) =>
    members(rank).map((each) => [each, members(children.core)]));
  ranks.sort(([a], [b]) => a - b).forEach(([rank, cores], at) => {
    nodes.set(rank, { host: names[at], cores, free: new Set(cores), up: false });
  });
}

// Nodes that have left the instance; the jobs on them are not the scheduler's concern.
function shrink(targets) {
  for (const rank of targets) nodes.delete(rank);
  for (const job of queue.splice(0)) if (!denied(job)) queue.push(job);
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
    const here = free(node);
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
  const R = resourceSet(cut, job.spec);
  const data = Buffer.from(JSON.stringify(R)).toString("base64");
  const dirent = { ver: 1, type: "val", data }; // a treeobj (RFC 11)
  const ops = [{ key: keyOf(job.id), flags: 0, dirent }];
  flux.call("kvs.commit", { namespace: "primary", flags: 0, ops }) // before the answer
    .then(() => {
      if (granting.get(job.id) !== job) return; // it was canceled meanwhile
      granting.delete(job.id);
      answer(job, SUCCESS, { R });
    })
    .catch(leave);
}

function take(id, cut) {
  given.set(id, cut);
  for (const [rank, cores] of cut) cores.forEach((core) => nodes.get(rank)?.free.delete(core));
}

// A part of what a job holds, in whole ranks.
function free(id, ranks) {
  const cut = given.get(id);
  for (const rank of ranks) {
    cut.get(rank)?.forEach((core) => nodes.get(rank)?.free.add(core));
    cut.delete(rank);
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
    if (granting.delete(id)) {
      free(id, [...given.get(id).keys()]);
      given.delete(id);
    }
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
  "sched.free"(request, { id, R, final }) { // without an answer
    free(id, R.execution.R_lite.flatMap(({ rank }) => members(rank)));
    if (final) given.delete(id);
  },
};

function onRequest(request) {
  const method = methods[request.topic];
  if (method) method(request, request.payload);
  else if (request.matchtag) flux.respond(request, "not here", ENOSYS);
  schedule();
}

// --- the order of a start (RFC 27, Hello): acquire, the first response, hello to its end, ready

function acquire() {
  return new Promise((resolve, reject) => {
    flux.stream("resource.acquire", null, ({ resources, up = "", down = "", shrink: gone = "" }) => {
      if (resources) inventory(resources);
      if (gone) shrink(members(gone));
      for (const rank of members(up)) nodes.get(rank).up = true;
      for (const rank of members(down)) if (nodes.has(rank)) nodes.get(rank).up = false;
      resolve();
      schedule();
    }).catch((error) => (reject(error), leave(error)));
  });
}

async function hello() {
  const freed = new Map(); // by job, the ranks that were freed before
  const allocated = ({ id, free }) => freed.set(id, members(free ?? ""));
  await flux.stream("job-manager.sched-hello", { "partial-ok": true }, allocated);
  for (const [id, ranks] of freed) {
    const wanted = { key: keyOf(id), flags: 0, namespace: "primary" };
    const { val } = await flux.call("kvs.lookup", wanted);
    const entries = JSON.parse(Buffer.from(val.data, "base64")).execution.R_lite.flatMap(({ rank, children }) =>
      members(rank).map((each) => [each, members(children.core)]));
    take(id, new Map(entries.filter(([rank]) => !ranks.includes(rank))));
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
