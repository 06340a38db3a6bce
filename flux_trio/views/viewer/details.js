// The panel beside the chart: what was broken, and all about the row or the job that is chosen.

const LISTED_MAX = 60;     // entries of a list; the rest is counted

class Details {
  // `goTo` is called with the number of a record, `follow` with a job.
  constructor(panel, trace, page, { goTo, follow, close }) {
    this.panel = panel;
    this.trace = trace;
    this.page = page;
    this.goTo = goTo;
    this.follow = follow;
    this.close = close;
  }

  showNothing() {
    this.panel.replaceChildren();
    this.panel.hidden = true;
  }

  fill(title, ...parts) {
    const shut = element("button", { type: "button", className: "close", title: "Close" }, "×");
    shut.addEventListener("click", this.close);
    this.panel.replaceChildren(shut, element("h2", {}, title), ...parts.flat());
    this.panel.scrollTop = 0;
    this.panel.hidden = false;
  }

  // --- a row

  showRow(at) {
    const row = this.trace.rows[at];
    const described = this.trace.described(at);
    const since = row.t - this.trace.rows[0].t;
    const from = row.kind === "send" || row.kind === "recv" ? this.ends(row) : row.party;
    this.fill(
      described.text || row.kind,
      element("p", { className: "aside" }, this.addressOf(row), `, ${row.kind}, +${since.toFixed(6)} s, ${from}`),
      row.bad && row.kind === "drop" ? element("p", { className: "broken" }, row.text) : [],
      this.violationsAt(row),
      this.links(row, at),
      this.jobsOf(row),
      this.changesAfter(row),
      this.clausesOf(row),
      this.body(described),
    );
  }

  // A link that leads to the record when it is opened elsewhere.
  addressOf(row) {
    if (this.page.live) return `record ${row.n}`;
    return element("a", { href: `#${row.n}`, title: "A link to this record" }, `record ${row.n}`);
  }

  ends(row) {
    const [from, to] = row.kind === "send" ? [row.party, row.peer] : [row.peer, row.party];
    return `${from || "unknown"} → ${to || "all who subscribe"}`;
  }

  violationsAt(row) {
    const own = (this.trace.broken.get(row.n) ?? []).map((each) =>
      element("p", { className: "broken" }, `${each.clause} is broken: ${each.text}`));
    const others = (this.trace.reasons.get(row.n) ?? []).slice(0, LISTED_MAX).map((each) =>
      element("p", {}, "It explains why ", this.linkTo(each.n, each.clause), " is broken."));
    return [...own, ...others];
  }

  // What led to the row, and what it led to.
  links(row, at) {
    const send = this.trace.sendOf(at);
    const message = send === undefined ? at : send;
    const shown = [];
    const add = (words, n) => shown.push(element("li", {}, `${words} `, this.linkTo(n)));
    const said = this.trace.rows[message];
    if (send !== undefined) add("was sent at", said.n);
    for (const end of (this.trace.ends.get(message) ?? []).slice(0, LISTED_MAX)) {
      const each = this.trace.rows[end];
      if (end !== at) add(each.kind === "drop" ? "was lost at" : `was taken up by ${each.party} at`, each.n);
    }
    if (said.kind === "send" && !this.trace.ends.has(message) && said.peer) {
      shown.push(element("li", {}, this.page.live ? "is on its way" : "was not taken up in this trace"));
    }
    const request = said.request || row.request;
    if (request) add("answers the request at", request);
    for (const answer of (this.trace.answers.get(said.n) ?? []).slice(0, LISTED_MAX)) {
      add("was answered at", this.trace.rows[answer].n);
    }
    if (said.after) add(`the last that ${said.party} had taken up before it:`, said.after);
    return shown.length ? [element("h3", {}, "Cause and effect"), element("ul", {}, ...shown)] : [];
  }

  linkTo(n, words) {
    const at = this.trace.places.get(n);
    if (at === undefined) return element("span", {}, words ?? `${n} (not in this page)`);
    const text = words ?? `${n}: ${shortened(this.trace.described(at).text || this.trace.rows[at].kind)}`;
    const made = element("button", { type: "button", className: "link" }, text);
    made.addEventListener("click", () => this.goTo(n));
    return made;
  }

  jobsOf(row) {
    if (!row.jobs.length) return [];
    const buttons = row.jobs.slice(0, LISTED_MAX).map((job) => {
      const made = element("button", { type: "button", className: "link" }, job);
      made.addEventListener("click", () => this.follow(job));
      return made;
    });
    return [element("p", {}, "Follow ", ...buttons.flatMap((each) => [each, " "]))];
  }

  clausesOf(row) {
    const ids = typeof row.clauses === "number" ? this.page.clause_sets[row.clauses] : row.clauses;
    if (!ids?.length) return [];
    const broken = new Set((this.trace.broken.get(row.n) ?? []).map((each) => each.clause));
    const verdict = (id) => (this.page.live ? "" : broken.has(id) ? " broken." : " kept.");
    const items = ids.slice(0, LISTED_MAX).map((id) => element(
      "li",
      { className: broken.has(id) ? "broken" : "kept" },
      element("b", {}, id),
      `${verdict(id)} ${this.page.clauses[id] ?? ""}`,
    ));
    const summary = element("summary", {}, ids.length > 1 ? `${ids.length} clauses speak of it` : "One clause speaks of it");
    const open = ids.length <= 4 || broken.size > 0;
    return [element("details", { open }, summary, element("ul", { className: "clauses" }, ...items))];
  }

  body(row) {
    if (!row.body) return [];
    const cut = row.cut ? `\n… and ${row.cut} characters more` : "";
    const title = row.kind === "send" || row.kind === "recv" ? "Message" : "Data";
    return [element("h3", {}, title), element("pre", {}, indented(row.body) + cut)];
  }

  // The turn that a row of a story belongs to, and the states of all cores after it.
  changesAfter(row) {
    const { changes, left_out: leftOut } = this.page;
    if (!changes.length || row.n <= leftOut) return [];
    const turn = changes.filter(({ since, after }) => since < row.n && row.n <= after);
    const end = turn.at(-1)?.after ?? row.n;
    const states = new Map();
    for (const change of changes) if (change.after <= end) states.set(change.module, change);
    const lines = turn.flatMap(({ module, lines }) => lines.map((line) => `${module}: ${line}`));
    return [
      element("h3", {}, "What this turn changes in the cores"),
      element("pre", {}, lines.join("\n") || "nothing"),
      ...[...states.values()].map(({ module, state }) => element(
        "details", {}, element("summary", {}, `state of ${module}`), element("pre", {}, state || "empty"))),
    ];
  }

  // --- a job

  showJob(id) {
    const job = this.trace.jobs.get(id);
    const rows = [...new Set(job.rows)].sort((a, b) => a - b);
    this.fill(
      `Job ${id}`,
      element("p", { className: "aside" }, `${rows.length} records speak of it`),
      element("h3", {}, "States"),
      element("ol", {}, ...this.statesOf(job)),
      element("h3", {}, "Through the components"),
      element("ol", {}, ...this.visitsOf(rows)),
    );
  }

  statesOf(job) {
    const t = (at) => this.trace.rows[at].t;
    return job.bars.slice(0, LISTED_MAX).map(({ state, at }, i) => {
      const until = job.bars[i + 1];
      const lasted = until ? ` for ${(t(until.at) - t(at)).toFixed(3)} s` : "";
      return element("li", {}, this.linkTo(this.trace.rows[at].n, state), lasted);
    });
  }

  // The parties that had to do with a job, one after the other.
  visitsOf(rows) {
    const visits = [];
    for (const at of rows) {
      const { party } = this.trace.rows[at];
      if (visits.at(-1)?.party === party) visits.at(-1).count += 1;
      else visits.push({ party, at, count: 1 });
    }
    const items = visits.slice(0, LISTED_MAX).map(({ party, at, count }) => {
      const words = `${party}, ${count} ${count > 1 ? "records" : "record"} from ${this.trace.rows[at].n}`;
      return element("li", {}, this.linkTo(this.trace.rows[at].n, words));
    });
    const more = visits.length - LISTED_MAX;
    return more > 0 ? [...items, element("li", {}, `and ${more} more`)] : items;
  }
}

function shortened(text) {
  return text.length > 60 ? `${text.slice(0, 59)}…` : text;
}
