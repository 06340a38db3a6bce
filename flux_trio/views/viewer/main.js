// The page: which rows are shown, which one is chosen, and what a key or a click does.

const BROKEN_MAX = 100;    // violations that are listed
const NONE_SO_FAR = "No clause is broken so far";

class Viewer {
  constructor(page) {
    this.page = page;
    this.trace = new Trace();
    this.filter = { job: "", party: "", words: "", story: page.story.length > 0, start: false };
    this.chosen = -1;
    const goTo = (n) => this.goTo(this.trace.places.get(n));
    const follow = (job) => this.followJob(job);
    this.chart = new Chart(byId("chart"), this.trace, {
      choose: (at) => this.choose(at),
      pickParty: (party) => this.narrow({ party }),
    });
    this.jobs = new Jobs(byId("jobs"), this.trace, { follow, goTo: (at) => this.goTo(at) });
    this.details = new Details(byId("details"), this.trace, page, {
      goTo, follow, close: () => this.leave(),
    });
    this.chart.onDraw = (span) => this.jobs.showSpan(span);
    this.trace.begin(page.begun, page.modules);
    for (const row of page.rows) this.trace.add(row);
    for (const violation of page.violations) this.trace.addViolation(violation);
    this.filter.start = this.foldsStart();
    this.listen();
    this.update();
    this.jobs.update();
    this.details.showNothing();
    const first = Number(location.hash.slice(1)) || page.violations[0]?.n;
    if (this.trace.places.has(first)) this.showAt(this.trace.places.get(first));
  }

  // The start-up of an instance is folded, unless something is wrong in it. A page that grows has
  // none, and a story says by itself what is shown.
  foldsStart() {
    const first = this.firstOfJob();
    const isWrong = [...this.trace.marks, ...this.trace.violations.map(({ n }) => this.trace.places.get(n))];
    return !this.page.live && !this.page.story.length && first > 0 && !isWrong.some((at) => at < first);
  }

  // Return the index of the first row that is about a job, -1 if there is none.
  firstOfJob() {
    return this.trace.rows.findIndex(({ jobs }) => jobs.length > 0);
  }

  listen() {
    byId("words").addEventListener("input", (event) => this.narrow({ words: event.target.value }));
    byId("story").parentElement.hidden = !this.page.story.length;
    byId("story").checked = this.filter.story;
    byId("story").addEventListener("change", (event) => this.narrow({ story: event.target.checked }));
    // Drawing may change the size again, which an observer may not see while it is called.
    const redraw = () => { this.update(); this.jobs.update(); };
    new ResizeObserver(() => requestAnimationFrame(redraw)).observe(byId("chart"));
    document.addEventListener("keydown", (event) => this.press(event));
    this.listBroken();
  }

  press(event) {
    if (event.target.matches("input")) return;
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };
    if (event.key in steps) this.step(steps[event.key]);
    else if (event.key === "Escape") this.leave();
    else if (event.key === "n") this.nextBroken();
    else return;
    event.preventDefault();
  }

  // --- which rows

  // Change the filter; the chosen row stays chosen.
  narrow(change) {
    Object.assign(this.filter, change);
    this.update();
    if (this.chosen >= 0) this.chart.reveal(this.chosen);
  }

  update() {
    this.chart.show(this.shown());
    this.showChips();
  }

  shown() {
    const story = new Set(this.filter.story ? this.page.story : []);
    const lanes = this.trace.lanes();
    const found = [];
    const first = this.filter.start ? this.firstOfJob() : 0;
    this.trace.rows.forEach((row, at) => {
      if (at >= first && this.passes(row, at, story, lanes)) found.push(at);
    });
    return found;
  }

  passes(row, at, story, lanes) {
    const { job, party, words } = this.filter;
    if (story.size && !story.has(row.n)) return false;
    if (job && !row.jobs.includes(job) && !row.gone && row.bad !== "fault") return false;
    if (party && lanes.get(row.party) !== party && lanes.get(row.peer) !== party) return false;
    return !words || this.trace.described(at).text.includes(words);
  }

  showChips() {
    const { job, party, start } = this.filter;
    const chips = [
      ["start", start, `start-up: ${this.firstOfJob()} records`],
      ["job", job, `job ${job}`],
      ["party", party, party],
    ].filter(([, value]) => value);
    byId("chips").replaceChildren(...chips.map(([name, , words]) => {
      const title = name === "start" ? "Show the start-up" : "Show all again";
      const chip = element("button", { type: "button", title }, `${words} ${name === "start" ? "+" : "×"}`);
      chip.addEventListener("click", () => this.narrow({ [name]: "" }));
      return chip;
    }));
    const shown = this.chart.view.length;
    const all = this.trace.rows.length;
    byId("count").textContent = shown === all ? `${all} records` : `${shown} of ${all} records`;
  }

  // Forget the first rows, of a trace that grows.
  forget(count) {
    this.trace.forget(count);
    this.chosen = Math.max(-1, this.chosen - count);
    if (this.chosen >= 0) this.chart.related = this.relatedTo(this.chosen);
    this.chart.selected = this.chosen;
  }

  // --- which row

  choose(at) {
    this.chosen = at;
    this.chart.select(at, this.relatedTo(at));
    this.details.showRow(at);
    if (!this.page.live) history.replaceState(null, "", `#${this.trace.rows[at].n}`);
  }

  // The ends of a message, its request and answers, and the records that explain what it breaks.
  relatedTo(at) {
    const { trace } = this;
    const message = trace.sendOf(at) ?? at;
    const { n, request } = trace.rows[message];
    const broken = trace.broken.get(trace.rows[at].n) ?? [];
    const places = [request, ...broken.flatMap(({ because }) => because)];
    return new Set([
      message,
      ...(trace.ends.get(message) ?? []),
      ...(trace.answers.get(n) ?? []),
      ...places.map((each) => trace.places.get(each)).filter((each) => each !== undefined),
    ]);
  }

  goTo(at) {
    if (at === undefined) return;
    this.showAt(at);
    byId("chart").scrollIntoView({ block: "nearest" });
  }

  showAt(at) {
    if (!this.chart.rowOf.has(at)) this.showAll();
    this.chart.reveal(at);
    this.choose(at);
  }

  showAll() {
    byId("words").value = "";
    byId("story").checked = false;
    this.jobs.select("");
    this.narrow({ job: "", party: "", words: "", story: false, start: false });
  }

  step(by) {
    const { view, rowOf } = this.chart;
    const place = rowOf.has(this.chosen) ? rowOf.get(this.chosen) + by : this.chart.placeFrom(this.chosen);
    if (view[place] !== undefined) this.goTo(view[place]);
  }

  nextBroken() {
    const places = this.trace.violations.map(({ n }) => this.trace.places.get(n));
    const known = places.filter((at) => at !== undefined).sort((a, b) => a - b);
    this.goTo(known.find((at) => at > this.chosen) ?? known[0]);
  }

  leave() {
    this.chosen = -1;
    this.chart.select(-1, new Set());
    this.details.showNothing();
  }

  followJob(job) {
    byId("story").checked = false;
    this.narrow({ job, story: false });
    this.jobs.select(job);
    this.details.showJob(job);
  }

  // --- what is broken

  listBroken() {
    const causes = this.trace.violations.filter(({ follows }) => !follows);
    const items = causes.slice(0, BROKEN_MAX).map((violation) => this.itemOf(violation));
    const more = causes.length - BROKEN_MAX;
    const none = this.page.live ? NONE_SO_FAR : "No clause is broken";
    const title = causes.length ? `${causes.length} broken` : none;
    byId("broken").replaceChildren(
      element("h2", {}, title),
      element("ul", {}, ...items),
      more > 0 ? element("p", { className: "aside" }, `and ${more} more`) : "",
    );
  }

  itemOf(violation) {
    const { clause, party, text, n, following, is_last } = violation;
    const by = party ? ` by ${party}` : "";
    const known = this.trace.places.has(n) ? `record ${n}` : `record ${n}, which is not in this page`;
    const where = n ? known : "no single record breaks it";
    const more = following ? `, and ${following} that follow from it` : "";
    const end = is_last ? "; further ones of this clause are not told" : "";
    const button = element(
      "button",
      { type: "button", title: printable(this.page.clauses[clause] ?? "") },
      element("b", {}, `${clause}${by}`), element("span", {}, text),
      element("small", {}, where + more + end),
    );
    button.addEventListener("click", () => this.goTo(this.trace.places.get(n)));
    return element("li", {}, button);
  }
}

function byId(id) {
  return document.getElementById(id);
}

const viewer = new Viewer(JSON.parse(byId("page").textContent));
if (viewer.page.live) new Live(viewer).run();
