// The trace: its rows, and what follows from them. Rows are added in their order, at any time.

const CLIENT_LANES_MAX = 3;  // more clients than this share a lane
const CLIENTS = "clients";
const BROKER = "broker";

class Trace {
  constructor() {
    this.clear();
  }

  clear() {
    this.rows = [];
    this.places = new Map();     // number of a record -> index of its row
    this.ends = new Map();       // index of a send -> indices of its receipts and drops
    this.answers = new Map();    // number of a request -> indices of its responses
    this.parties = new Map();    // name -> whether it is a module or serves requests
    this.presence = new Map();      // module -> [{at, isThere}], from the index `at` on
    this.jobs = new Map();       // job -> {id, bars: [{state, at}], rows, marks}, with indices
    this.marks = [];             // indices of failures, losses and faults
    this.broken = new Map();     // number of a record -> its violations
    this.reasons = new Map();    // number of a record -> violations that it explains
    this.violations = [];
    this.changes = [];           // of cores, in their order
  }

  // Take the states that jobs are in before the first row, and the modules that are there.
  begin(states, modules) {
    for (const name of modules) this.noteParty(name, true);
    for (const [id, state] of Object.entries(states)) {
      this.jobs.set(id, { id, bars: [{ state, at: 0 }], rows: [], marks: [] });
    }
  }

  // Forget the first rows. Jobs keep the states that they are in.
  forget(count) {
    const { jobs, rows, violations, parties } = this;
    const states = {};
    for (const { id, bars } of jobs.values()) {
      const state = bars.filter(({ at }) => at < count).at(-1)?.state;
      if (state && state !== "INACTIVE") states[id] = state;
    }
    this.clear();
    this.begin(states, [...parties].filter(([, serves]) => serves).map(([name]) => name));
    for (const row of rows.slice(count)) this.add(row);
    for (const violation of violations) this.addViolation(violation);
  }

  add(row) {
    const at = this.rows.length;
    row.jobs ??= [];
    this.rows.push(row);
    this.places.set(row.n, at);
    this.noteParties(row);
    if (row.kind === "recv" || row.kind === "drop") this.noteEnd(row, at);
    if (row.kind === "module") this.noteLife(row, at);
    if (row.request) this.noteAnswer(row, at);
    if (row.bad) this.marks.push(at);
    for (const job of row.jobs) this.noteJob(job, row, at);
  }

  addViolation(violation) {
    this.violations.push(violation);
    listIn(this.broken, violation.n).push(violation);
    for (const n of violation.because) {
      if (n !== violation.n) listIn(this.reasons, n).push(violation);
    }
  }

  // The others are clients: those that are no modules, and that nobody sends a request.
  noteParties(row) {
    const isAsked = row.kind === "send" && row.text.startsWith("request ");
    if (row.peer) this.noteParty(row.peer, isAsked || row.kind === "module");
    this.noteParty(row.party, row.kind === "event" || row.party === BROKER);
  }

  noteParty(name, serves) {
    this.parties.set(name, this.parties.get(name) || serves);
  }

  noteEnd(row, at) {
    const sent = this.places.get(row.ref);
    if (sent === undefined) return;
    listIn(this.ends, sent).push(at);
    if (!row.jobs.length) row.jobs = this.rows[sent].jobs;
    row.peer ||= this.rows[sent].party;
  }

  noteLife(row, at) {
    listIn(this.presence, row.peer).push({ at, isThere: !row.gone });
  }

  // A call is about the jobs that its last answer names, as a submission is.
  noteAnswer(row, at) {
    if (row.kind !== "send") return;
    listIn(this.answers, row.request).push(at);
    const asked = this.places.get(row.request);
    if (!row.last || asked === undefined || this.rows[asked].jobs.length) return;
    for (const each of [asked, ...(this.ends.get(asked) ?? [])]) {
      this.rows[each].jobs = row.jobs;
      for (const job of row.jobs) this.noteJob(job, this.rows[each], each);
    }
  }

  noteJob(job, row, at) {
    if (!this.jobs.has(job)) this.jobs.set(job, { id: job, bars: [], rows: [], marks: [] });
    const found = this.jobs.get(job);
    found.rows.push(at);
    if (row.state) found.bars.push({ state: row.state, at });
    if (row.bad) found.marks.push(at);
  }

  // Returns the index of the send of a receipt or drop, undefined if the trace does not have it.
  sendOf(at) {
    const { kind, ref } = this.rows[at];
    return kind === "recv" || kind === "drop" ? this.places.get(ref) : undefined;
  }

  // Returns the row with the words of a message: that of its send, if the trace has it.
  described(at) {
    return this.rows[this.rows[at].text ? at : this.sendOf(at) ?? at];
  }

  // Returns by party the name of its lane, in the lanes' order: clients first, then the others as
  // they appear. Many clients share a lane.
  lanes() {
    const clients = [...this.parties].filter(([, serves]) => !serves).map(([party]) => party);
    const servers = [...this.parties].filter(([, serves]) => serves).map(([party]) => party);
    const share = clients.length > CLIENT_LANES_MAX;
    return new Map([
      ...clients.map((party) => [party, share ? CLIENTS : party]),
      ...servers.map((party) => [party, party]),
    ]);
  }
}

// Returns the list under a key; a new one if there is none.
function listIn(map, key) {
  if (!map.has(key)) map.set(key, []);
  return map.get(key);
}
