// The chart: a lane for each party, time downward, a row for each record, an arrow for each message.
// Only what is on the screen is drawn: parts of PART rows, each a picture of its own, come and go.

const ROW = 22;            // height of a row
const PART = 12;           // rows in a part
const STAMP = 118;         // width of the column of places and times
const STAMP_NARROW = 46;   // the same on a narrow screen, without times
const NARROW = 600;
const LANE_MIN = 60;
const LANE_MAX = 260;
const CHAR = 6.1;          // average width of a character
const BOLDER = 1.12;       // bold text is wider by this factor
const PASSING_MAX = 24;    // arrows in a part that begin above it and end below it
const HEAD = 6;

class Chart {
  // `choose` is called with the index of a row that was clicked, `pickParty` with a party.
  constructor(scroller, trace, { choose, pickParty }) {
    this.scroller = scroller;
    this.trace = trace;
    this.pickParty = pickParty;
    this.header = element("div", { className: "lanes" });
    this.body = element("div", { className: "rows" });
    this.scroller.replaceChildren(this.header, this.body);
    this.view = [];            // indices of the rows that are shown, in their order
    this.rowOf = new Map();    // index -> its place in the view
    this.parts = new Map();    // number -> the picture on the page
    this.passing = [];         // by part, the arrows that pass through it: [from, to] places
    this.selected = -1;
    this.related = new Set();
    scroller.addEventListener("scroll", () => this.draw());
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("[data-at]");
      if (row) choose(Number(row.dataset.at));
    });
  }

  // Show these rows; everything is drawn anew.
  show(view) {
    this.view = view;
    this.rowOf = new Map(view.map((at, place) => [at, place]));
    this.layOut();
    this.redraw();
  }

  layOut() {
    this.laneOf = this.trace.lanes();
    const used = this.lanesInView();
    const names = [...new Set(this.laneOf.values())].filter((name) => used.has(name));
    this.stamp = this.scroller.clientWidth < NARROW ? STAMP_NARROW : STAMP;
    const room = this.scroller.clientWidth - this.stamp;
    this.lane = Math.min(LANE_MAX, Math.max(LANE_MIN, room / Math.max(names.length, 1)));
    this.width = Math.max(this.stamp + this.lane * names.length, this.scroller.clientWidth);
    this.x = new Map(names.map((name, i) => [name, this.stamp + this.lane * (i + 0.5)]));
    this.body.style.width = this.header.style.width = `${this.width}px`;
    this.body.style.height = `${this.view.length * ROW + 40}px`;
    this.header.replaceChildren(...names.map((name) => this.nameOfLane(name)));
    this.findPassing();
  }

  lanesInView() {
    const used = new Set();
    for (const at of this.view) {
      const { party, peer, kind } = this.trace.rows[at];
      if (kind !== "module") used.add(this.laneOf.get(party));
      used.add(this.laneOf.get(peer));
    }
    return used;
  }

  nameOfLane(name) {
    const title = `Show only what ${name} did or was sent`;
    const made = element("button", { type: "button", title: printable(title) }, name);
    made.style.left = `${this.x.get(name) - this.lane / 2 + 2}px`;
    made.style.width = `${this.lane - 4}px`;
    made.addEventListener("click", () => this.pickParty(name));
    return made;
  }

  // Find for each part the arrows that neither begin nor end in it, at most PASSING_MAX.
  findPassing() {
    this.passing = [];
    for (const [sent, ends] of this.trace.ends) {
      const from = this.rowOf.get(sent);
      if (from === undefined) continue;
      for (const end of ends) {
        const to = this.rowOf.get(end);
        if (to === undefined) continue;
        for (let part = partOf(from) + 1; part < partOf(to); part++) {
          const arrows = (this.passing[part] ??= []);
          if (arrows.length === PASSING_MAX) break;
          arrows.push(end);
        }
      }
    }
  }

  // Draw the parts that are on the screen and one more on each side; remove the others.
  draw() {
    const top = this.scroller.scrollTop - ROW * PART;
    const bottom = this.scroller.scrollTop + this.scroller.clientHeight + ROW * PART;
    const first = Math.max(0, partOf(top / ROW));
    const last = Math.min(partOf(this.view.length - 1), partOf(bottom / ROW));
    for (const [number, picture] of this.parts) {
      if (number < first || number > last) {
        picture.remove();
        this.parts.delete(number);
      }
    }
    for (let number = first; number <= last; number++) {
      if (!this.parts.has(number)) {
        const picture = this.drawPart(number);
        this.parts.set(number, picture);
        this.body.append(picture);
      }
    }
    this.onDraw?.(this.visible());
  }

  redraw() {
    for (const picture of this.parts.values()) picture.remove();
    this.parts.clear();
    this.draw();
  }

  // Return the first and the last index on the screen.
  visible() {
    const first = Math.floor(this.scroller.scrollTop / ROW);
    const count = Math.ceil(this.scroller.clientHeight / ROW);
    const last = Math.min(first + count, this.view.length - 1);
    return [this.view[Math.min(first, this.view.length - 1)] ?? 0, this.view[last] ?? 0];
  }

  // Bring a row to the middle of the screen, unless it is on the screen.
  reveal(at) {
    const place = this.rowOf.get(at);
    if (place === undefined) return;
    const top = place * ROW;
    const { scrollTop, clientHeight } = this.scroller;
    const hidden = this.header.offsetHeight + ROW;
    if (top < scrollTop + ROW || top > scrollTop + clientHeight - hidden - ROW) {
      this.scroller.scrollTop = Math.max(0, top - clientHeight / 2);
    }
    const x = this.x.get(this.laneOf.get(this.trace.rows[at].party));
    const { scrollLeft, clientWidth } = this.scroller;
    if (x < scrollLeft + this.lane / 2 || x > scrollLeft + clientWidth - this.lane / 2) {
      this.scroller.scrollLeft = x - clientWidth / 2;
    }
  }

  // Mark a row as selected, and others as related to it.
  select(at, related) {
    this.selected = at;
    this.related = related;
    this.redraw();
  }

  // --- parts

  drawPart(number) {
    const first = number * PART;
    const count = Math.min(PART, this.view.length - first);
    const height = count * ROW;
    const picture = drawn("svg", { width: this.width, height, class: "part" });
    picture.style.top = `${first * ROW}px`;
    const backs = [];
    const arrows = (this.passing[number] ?? []).flatMap((end) => this.arrow(end, first));
    const texts = [];
    for (let place = first; place < first + count; place++) {
      const at = this.view[place];
      const y = (place - first) * ROW;
      const box = { x: 0, y, width: this.width, height: ROW };
      backs.push(drawn("rect", { ...box, class: this.classOf(at), "data-at": at }));
      arrows.push(...this.arrowsAt(at, first, count));
      texts.push(...this.textsOf(at, y));
    }
    picture.append(...backs, ...this.laneLines(first, count), ...arrows, ...texts);
    return picture;
  }

  // A lane is a line, dotted where its module is not loaded.
  *laneLines(first, count) {
    for (const [name, x] of this.x) {
      const turns = (this.trace.presence.get(name) ?? []).map(({ at, isThere }) => {
        return { y: (this.placeFrom(at) - first + 0.5) * ROW, isThere };
      });
      const before = turns.filter(({ y }) => y < 0).at(-1);
      let isThere = before ? before.isThere : !turns[0]?.isThere;
      let top = 0;
      for (const turn of turns.filter(({ y }) => y >= 0 && y < count * ROW)) {
        yield vertical(x, top, turn.y, isThere);
        [top, isThere] = [turn.y, turn.isThere];
      }
      yield vertical(x, top, count * ROW, isThere);
    }
  }

  // Return the place of a row in the view; of a row that is not shown, that of the next one.
  placeFrom(at) {
    const place = this.rowOf.get(at);
    if (place !== undefined) return place;
    let [low, high] = [0, this.view.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.view[middle] < at) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  *textsOf(at, y) {
    const row = this.trace.rows[at];
    const since = this.stamp === STAMP ? `  +${(row.t - this.trace.rows[0].t).toFixed(3)}` : "";
    yield drawn("text", { x: 6, y: y + 15, class: "stamp" }, `${row.n}${since}`);
    const isMessage = row.kind === "send" || row.kind === "recv" || row.kind === "drop";
    if (!isMessage) yield* this.note(row, y);
    else if (row.text) yield this.label(row, y);
  }

  classOf(at) {
    const names = ["row"];
    if (this.trace.broken.has(this.trace.rows[at].n)) names.push("broken");
    if (this.related.has(at)) names.push("related");
    if (this.selected === at) names.push("selected");
    return names.join(" ");
  }

  // The words of a message are beside the lane of its sender, on the side of the arrow.
  label(row, y) {
    const x = this.at(row.party);
    const to = this.at(row.peer);
    const isLeft = row.kind === "recv" ? to > x : to < x;
    const char = this.mood(row) ? CHAR * BOLDER : CHAR;
    const shown = this.textThatFits(row.text, (this.width - this.stamp - 12) / char);
    const length = shown.length * char;
    const start = isLeft ? Math.max(this.stamp + 2, x - 8 - length) : x + 8;
    const end = Math.min(start, this.width - 4 - length);
    return drawn("text", { x: Math.max(this.stamp + 2, end), y: y + 11, class: `said ${this.mood(row)}` }, shown);
  }

  // What is no message is a box on the lane of its party; a fault is over all lanes.
  *note(row, y) {
    const isFault = row.bad === "fault";
    const middle = row.kind === "module" ? this.at(row.peer) : this.at(row.party);
    const mood = this.mood(row);
    const char = mood ? CHAR * BOLDER : CHAR;
    const shown = this.textThatFits(row.text, (this.width - this.stamp - 16) / char);
    const width = isFault ? this.width - this.stamp - 4 : shown.length * char + 14;
    const left = isFault ? this.stamp : Math.max(this.stamp, Math.min(middle - width / 2, this.width - width - 2));
    const state = row.state ? ` ${row.state}` : "";
    yield drawn("rect", { x: left, y: y + 2, width, height: ROW - 4, rx: 3, class: `note${state} ${mood}` });
    yield drawn("text", { x: left + 7, y: y + 15, class: `noted ${mood}` }, shown);
  }

  mood(row) {
    return row.bad || this.trace.broken.has(row.n) ? "bad" : "";
  }

  textThatFits(text, count) {
    return text.length <= count ? text : `${text.slice(0, Math.max(Math.floor(count) - 1, 1))}…`;
  }

  at(party) {
    return this.x.get(this.laneOf.get(party)) ?? this.stamp + 8;
  }

  // --- arrows

  // Return the arrows that begin or end at a row and are not drawn for an earlier row of the part.
  arrowsAt(at, first, count) {
    const row = this.trace.rows[at];
    if (row.kind === "recv" || row.kind === "drop") return this.arrow(at, first);
    if (row.kind !== "send") return [];
    const ends = (this.trace.ends.get(at) ?? []).map((end) => [end, this.rowOf.get(end)]);
    const shown = ends.filter(([, place]) => place !== undefined);
    if (!shown.length) return this.levelArrow(row, ends.length, this.rowOf.get(at) - first);
    return shown.filter(([, place]) => place >= first + count).flatMap(([end]) => this.arrow(end, first));
  }

  // Return the arrow to a receipt or drop. It is level if its send is not shown.
  arrow(end, first) {
    const row = this.trace.rows[end];
    const y2 = (this.rowOf.get(end) - first + 0.5) * ROW;
    const sent = this.rowOf.get(this.trace.sendOf(end) ?? -1);
    const y1 = sent === undefined ? y2 : (sent - first + 0.5) * ROW;
    const send = sent === undefined ? undefined : this.trace.rows[this.view[sent]];
    const from = this.at(send ? send.party : row.peer);
    const to = this.at(row.kind === "drop" ? send?.peer || row.party : row.party);
    return this.line(from, y1, to, y2, this.classOfArrow(end), row.kind === "drop");
  }

  // A message whose receipt is not shown; dotted if the trace does not have one.
  levelArrow(row, nends, place) {
    const y = (place + 0.5) * ROW;
    const from = this.at(row.party);
    const isEvent = !row.peer;
    const to = isEvent ? from + 26 : this.at(row.peer);
    const away = nends || isEvent ? "" : " away";
    return this.line(from, y, to, y, `${this.classOfArrow(this.trace.places.get(row.n))}${away}`);
  }

  classOfArrow(at) {
    const row = this.trace.rows[at];
    const described = this.trace.described(at);
    const names = ["arrow"];
    if (row.bad || described.bad) names.push("bad");
    if (this.trace.broken.has(row.n)) names.push("broken");
    const pair = [at, this.trace.sendOf(at)];
    if (pair.some((each) => this.related.has(each))) names.push("related");
    if (pair.includes(this.selected)) names.push("selected");
    return names.join(" ");
  }

  line(x1, y1, x2, y2, name, isLost = false) {
    if (x1 === x2) {
      return [drawn("path", { d: `M${x1} ${y1}h14V${y2}h-14`, class: `${name} open` })];
    }
    const length = Math.hypot(x2 - x1, y2 - y1);
    const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
    const [bx, by] = [x2 - HEAD * ux, y2 - HEAD * uy];
    const [nx, ny] = [(-uy * HEAD) / 2, (ux * HEAD) / 2];
    const tip = isLost
      ? `M${x2 - 5} ${y2 - 5}l10 10m0 -10l-10 10`
      : `M${bx + nx} ${by + ny}L${x2} ${y2}L${bx - nx} ${by - ny}Z`;
    return [drawn("path", { d: `M${x1} ${y1}L${bx} ${by}${tip}`, class: isLost ? `${name} open` : name })];
  }
}

function partOf(place) {
  return Math.floor(place / PART);
}

function vertical(x, y1, y2, isThere) {
  return drawn("line", { x1: x, x2: x, y1, y2, class: isThere ? "lane" : "lane gone" });
}
