// The jobs: a bar for each state of a job, from left to right in the order of the records.
// Above them is a strip of the whole trace with its marks; a click on it goes to that place.

const JOB_ROW = 20;
const NAME = 118;          // width of the column of names
const NAMED = 58;          // a narrower bar has no name in it
const BARS_MAX = 60;       // bars and marks of one job

class Jobs {
  // `follow` is called with a job, `goTo` with an index.
  constructor(panel, trace, { follow, goTo }) {
    this.trace = trace;
    this.follow = follow;
    this.strip = drawn("svg", { class: "strip", height: 22 });
    this.scroller = element("div", { className: "job-list" });
    this.body = element("div", { className: "job-rows" });
    this.scroller.append(this.body);
    panel.replaceChildren(this.strip, this.scroller);
    this.followed = "";
    this.span = [0, 0];
    this.scroller.addEventListener("scroll", () => this.draw());
    this.strip.addEventListener("click", (event) => goTo(this.indexAt(event.offsetX)));
  }

  // Draw all anew, after rows were added or the size has changed.
  update() {
    this.width = this.scroller.clientWidth;
    this.list = [...this.trace.jobs.values()].filter((job) => job.bars.length);
    this.body.style.height = `${this.list.length * JOB_ROW}px`;
    this.drawStrip();
    this.draw();
  }

  select(job) {
    this.followed = job;
    const place = this.list.findIndex(({ id }) => id === job);
    const top = place * JOB_ROW;
    const { scrollTop, clientHeight } = this.scroller;
    if (place >= 0 && (top < scrollTop || top > scrollTop + clientHeight - JOB_ROW)) {
      this.scroller.scrollTop = top - clientHeight / 2;
    }
    this.draw();
  }

  // Show in the strip which rows are on the screen.
  showSpan([first, last]) {
    const x = this.x(first);
    this.window?.setAttribute("x", x);
    this.window?.setAttribute("width", Math.max(this.x(last) - x, 3));
  }

  x(at) {
    return NAME + ((this.width - NAME - 6) * at) / Math.max(this.trace.rows.length - 1, 1);
  }

  indexAt(x) {
    const part = (x - NAME) / Math.max(this.width - NAME - 6, 1);
    const last = this.trace.rows.length - 1;
    return Math.round(Math.min(Math.max(part, 0), 1) * last);
  }

  drawStrip() {
    const broken = this.trace.violations.map(({ n }) => this.trace.places.get(n));
    const seconds = this.trace.rows.length ? this.trace.rows.at(-1).t - this.trace.rows[0].t : 0;
    this.window = drawn("rect", { y: 2, height: 18, class: "window" });
    this.strip.setAttribute("width", this.width);
    this.strip.replaceChildren(
      drawn("text", { x: 6, y: 15, class: "stamp" }, `${seconds.toFixed(3)} s`),
      drawn("rect", { x: NAME, y: 9, width: Math.max(this.width - NAME - 6, 0), height: 4, class: "whole" }),
      drawn("path", { d: this.ticks(this.trace.marks), class: "marks" }),
      drawn("path", { d: this.ticks(broken.filter((at) => at !== undefined)), class: "marks broken" }),
      this.window,
    );
  }

  // Return one path for all marks; those within a pixel are one.
  ticks(indices) {
    const columns = new Set(indices.map((at) => Math.round(this.x(at))));
    return [...columns].map((x) => `M${x} 4V18`).join("");
  }

  draw() {
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / JOB_ROW) - 2);
    const count = Math.ceil(this.scroller.clientHeight / JOB_ROW) + 4;
    const shown = this.list.slice(first, first + count);
    const picture = drawn("svg", { width: this.width, height: Math.max(shown.length, 1) * JOB_ROW });
    picture.style.top = `${first * JOB_ROW}px`;
    picture.append(...shown.map((job, i) => this.drawJob(job, i * JOB_ROW)));
    this.body.replaceChildren(picture);
  }

  drawJob(job, y) {
    const name = job.id === this.followed ? "job selected" : "job";
    const group = drawn("g", { class: name, "data-job": job.id });
    group.append(drawn("rect", { x: 0, y, width: this.width, height: JOB_ROW, class: "hit" }));
    group.append(drawn("text", { x: 6, y: y + 14, class: "name" }, job.id));
    group.append(...this.bars(job, y));
    group.addEventListener("click", () => this.follow(job.id));
    return group;
  }

  *bars(job, y) {
    let end = -1;
    let count = 0;
    for (let i = 0; i < job.bars.length && count < BARS_MAX; i++) {
      const { state, at } = job.bars[i];
      if (state === "INACTIVE") continue;
      const right = this.x(job.bars[i + 1]?.at ?? this.trace.rows.length - 1);
      if (right - end < 0.5 && count) continue;
      const x = Math.max(this.x(at), end);
      const width = Math.max(right - x, 1.5);
      yield drawn("rect", { x, y: y + 3, width, height: JOB_ROW - 6, class: `bar ${state}` });
      if (width > NAMED) yield drawn("text", { x: x + 4, y: y + 14, class: "in-bar" }, state);
      [end, count] = [right, count + 1];
    }
    for (const at of job.marks.slice(0, BARS_MAX)) {
      const x = this.x(at);
      yield drawn("path", { d: `M${x - 3} ${y + 7}l6 6m0 -6l-6 6`, class: "cross" });
    }
  }
}
