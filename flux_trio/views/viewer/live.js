// A running instance: rows come over a stream, and the oldest ones go.

const LIVE_MAX = 60000;    // rows, at most; then the oldest third goes
const UPDATE_MS = 250;     // rows are drawn at most this often
const BOTTOM = 60;         // who is so close to the end stays at the end

class Live {
  constructor(viewer) {
    this.viewer = viewer;
    this.isDue = false;
    this.listed = "";          // whether the record of each violation is in the page
  }

  // Read the stream until it ends; then say why.
  async run() {
    try {
      const stream = await this.open();
      this.say("live");
      await this.read(stream.body.getReader());
      this.say("the instance has ended, or flux-trio view has");
    } catch (error) {
      this.say(error.message);
    }
  }

  // The key in the address opens a session, once; the session outlasts a reload of the page.
  async open() {
    const key = location.hash.slice(1);
    if (key && !/^\d+$/.test(key)) {
      history.replaceState(null, "", location.pathname);
      const answer = await this.post("session", key);
      sessionStorage.setItem("session", (await answer.json()).session);
    }
    return this.post("records", sessionStorage.getItem("session") ?? "");
  }

  async post(path, secret) {
    const headers = { Authorization: `Bearer ${secret}` };
    const answer = await fetch(path, { method: "POST", headers });
    if (!answer.ok) throw new Error(await answer.text());
    return answer;
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop();
      for (const line of lines) this.take(JSON.parse(line));
      this.update();
    }
  }

  take({ row, lost, broken }) {
    const { trace } = this.viewer;
    if (row) trace.add(row);
    else if (broken) trace.addViolation(broken);
    else if (trace.rows.length) trace.add(gap(trace.rows.at(-1), lost));
  }

  update() {
    if (this.isDue) return;
    this.isDue = true;
    setTimeout(() => {
      this.isDue = false;
      const { trace, chart } = this.viewer;
      const { scrollTop, scrollHeight, clientHeight } = chart.scroller;
      const isAtEnd = scrollTop > scrollHeight - clientHeight - BOTTOM;
      if (trace.rows.length > LIVE_MAX) this.viewer.forget(Math.floor(LIVE_MAX / 3));
      this.viewer.update();
      this.viewer.jobs.update();
      this.listBroken();
      if (isAtEnd) chart.scroller.scrollTop = chart.scroller.scrollHeight;
    }, UPDATE_MS);
  }

  // List what is broken anew if that has changed, or where it is: who clicks meanwhile loses a click.
  listBroken() {
    const { trace } = this.viewer;
    const listed = trace.violations.map(({ n }) => trace.places.has(n)).join();
    if (listed !== this.listed) this.viewer.listBroken();
    this.listed = listed;
  }

  say(text) {
    byId("live").textContent = printable(text);
  }
}

// Records that are missing: a row over all lanes. It has the place of the row before it.
function gap(before, count) {
  const text = `${count} records are missing here: they came too fast; the judge begins anew`;
  return { n: before.n + 0.5, t: before.t, kind: "gap", party: before.party, text, bad: "fault" };
}
