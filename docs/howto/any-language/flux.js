// The wire of flux-trio for Node.js, without packages: CBOR, WebSocket frames, requests, responses.
"use strict";

const crypto = require("node:crypto");
const net = require("node:net");

const REQUEST = 1, RESPONSE = 2, EVENT = 4;
const TOPIC = 1, PAYLOAD = 2, ROUTE = 8, STREAMING = 64;
const NODEID_ANY = 0xffffffff, USERID_UNKNOWN = 0xffffffff, NO_MATCHTAG = 0;
const ENODATA = 61, ENOSYS = 38;

// --- CBOR (RFC 8949), as far as messages need it; integers beyond 2^53 are BigInt

function encode(value) {
  if (value === null || value === undefined) return Buffer.from([0xf6]);
  if (value === true || value === false) return Buffer.from([value ? 0xf5 : 0xf4]);
  if (typeof value === "bigint" || Number.isInteger(value)) {
    const number = BigInt(value);
    return number < 0n ? head(1, -1n - number) : head(0, number);
  }
  if (typeof value === "number") {
    const bytes = Buffer.alloc(9);
    bytes[0] = 0xfb;
    bytes.writeDoubleBE(value, 1);
    return bytes;
  }
  if (typeof value === "string") {
    const text = Buffer.from(value);
    return Buffer.concat([head(3, BigInt(text.length)), text]);
  }
  if (Array.isArray(value)) {
    return Buffer.concat([head(4, BigInt(value.length)), ...value.map(encode)]);
  }
  const entries = Object.entries(value);
  const parts = entries.flatMap(([key, inner]) => [encode(key), encode(inner)]);
  return Buffer.concat([head(5, BigInt(entries.length)), ...parts]);
}

function head(major, number) {
  const bytes = Buffer.alloc(9);
  if (number < 24n) return Buffer.from([(major << 5) | Number(number)]);
  if (number < 0x100n) return Buffer.from([(major << 5) | 24, Number(number)]);
  if (number < 0x10000n) {
    bytes[0] = (major << 5) | 25;
    bytes.writeUInt16BE(Number(number), 1);
    return bytes.subarray(0, 3);
  }
  if (number < 0x100000000n) {
    bytes[0] = (major << 5) | 26;
    bytes.writeUInt32BE(Number(number), 1);
    return bytes.subarray(0, 5);
  }
  bytes[0] = (major << 5) | 27;
  bytes.writeBigUInt64BE(number, 1);
  return bytes;
}

function decodeAll(bytes) {
  const values = [];
  let at = 0;
  const argument = (info) => {
    if (info < 24) return info;
    const size = 1 << (info - 24);
    at += size;
    if (size < 8) return bytes.readUIntBE(at - size, size);
    const number = bytes.readBigUInt64BE(at - 8);
    return number <= Number.MAX_SAFE_INTEGER ? Number(number) : number;
  };
  const one = () => {
    const first = bytes[at++], major = first >> 5, info = first & 31;
    if (major === 7) {
      if (info === 20 || info === 21) return info === 21;
      if (info === 22) return null;
      if (info === 25) return half(bytes.readUInt16BE((at += 2) - 2));
      if (info === 26) return bytes.readFloatBE((at += 4) - 4);
      return bytes.readDoubleBE((at += 8) - 8);
    }
    const number = argument(info);
    if (major === 0) return number;
    if (major === 1) return typeof number === "bigint" ? -1n - number : -1 - number;
    if (major === 3) return bytes.toString("utf8", at, (at += number));
    if (major === 4) return Array.from({ length: number }, one);
    return Object.fromEntries(Array.from({ length: number }, () => [one(), one()]));
  };
  while (at < bytes.length) values.push(one());
  return values;
}

function half(bits) {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

// --- WebSocket (RFC 6455), the client's side

function openSocket(uri, token, onFrame, onClose) {
  const { hostname, port } = new URL(uri);
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(port), hostname);
    let rest = Buffer.alloc(0), isOpen = false;
    socket.on("error", (error) => (isOpen ? onClose(error.message) : reject(error)));
    socket.on("close", () => onClose("the connection was cut"));
    socket.on("connect", () => socket.write([
      "GET / HTTP/1.1", `Host: ${hostname}:${port}`, "Connection: Upgrade", "Upgrade: websocket",
      "Sec-WebSocket-Version: 13", `Sec-WebSocket-Key: ${crypto.randomBytes(16).toString("base64")}`,
      `Authorization: Bearer ${token}`, "", "",
    ].join("\r\n")));
    socket.on("data", (data) => {
      rest = Buffer.concat([rest, data]);
      if (!isOpen) {
        const end = rest.indexOf("\r\n\r\n");
        if (end < 0) return;
        const status = rest.toString("latin1", 0, end).split("\r\n")[0];
        if (!status.includes(" 101 ")) return reject(new Error(status));
        rest = rest.subarray(end + 4);
        isOpen = true;
        resolve((payload, opcode = 2) => socket.write(frame(opcode, payload)));
      }
      for (let found; (found = unframe(rest)); rest = found.rest) {
        if (found.opcode === 2) onFrame(found.payload);
        if (found.opcode === 8) onClose(found.payload.toString("utf8", 2));
        if (found.opcode === 9) socket.write(frame(10, found.payload));
      }
    });
  });
}

function frame(opcode, payload) {
  const length = payload.length, mask = crypto.randomBytes(4);
  let size = Buffer.from([0x80 | length]);
  if (length > 125) size = Buffer.from([0x80 | 126, length >> 8, length & 255]);
  if (length > 0xffff) {
    size = Buffer.alloc(9);
    size[0] = 0x80 | 127;
    size.writeBigUInt64BE(BigInt(length), 1);
  }
  const masked = Buffer.from(payload.map((byte, at) => byte ^ mask[at & 3]));
  return Buffer.concat([Buffer.from([0x80 | opcode]), size, mask, masked]);
}

function unframe(bytes) {
  if (bytes.length < 2) return null;
  let length = bytes[1] & 127, at = 2;
  if (length > 125) {
    at = length === 126 ? 4 : 10;
    if (bytes.length < at) return null;
    length = at === 4 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
  }
  if (bytes.length < at + length) return null;
  const payload = bytes.subarray(at, at + length);
  return { opcode: bytes[0] & 15, payload, rest: bytes.subarray(at + length) };
}

// --- messages (RFC 3) and the pairing of requests and responses (RFC 6)

class Flux {
  // Connect; `onRequest` gets each request {topic, payload, ...} that comes for a service of ours.
  static async connect(uri, token, onRequest) {
    const flux = new Flux();
    const closed = (why) => {
      console.error(`the instance has closed the connection: ${why}`);
      process.exit(1);
    };
    const take = (bytes) => decodeAll(bytes).forEach((message) => flux.take(message, onRequest));
    flux.send = await openSocket(uri, token, take, closed);
    return flux;
  }

  constructor() {
    this.matchtag = 0;
    this.waiting = new Map(); // matchtag: what to do with a response
  }

  take([type, flags, userid, rolemask, number, matchtag, topic, routes, payload], onRequest) {
    if (type === REQUEST) onRequest({ topic, payload, matchtag, routes });
    if (type === RESPONSE) this.waiting.get(matchtag)?.(number, payload);
  }

  ask(topic, payload, streaming, onResponse) {
    const flags = TOPIC | ROUTE | (payload ? PAYLOAD : 0) | (streaming ? STREAMING : 0);
    const matchtag = ++this.matchtag;
    this.waiting.set(matchtag, (errnum, answer) => {
      if (errnum || !streaming) this.waiting.delete(matchtag);
      onResponse(errnum, answer);
    });
    this.send(encode([
      REQUEST, flags, USERID_UNKNOWN, 0, NODEID_ANY, matchtag, topic, [], payload ?? null,
    ]));
  }

  // One request, one response.
  call(topic, payload) {
    return new Promise((resolve, reject) => this.ask(topic, payload, false, (errnum, answer) =>
      errnum ? reject(new Error(`${topic}: ${answer ?? `error ${errnum}`}`)) : resolve(answer)));
  }

  // Many responses: `onEach` gets each; the promise is kept at ENODATA.
  stream(topic, payload, onEach) {
    return new Promise((resolve, reject) => this.ask(topic, payload, true, (errnum, answer) => {
      if (errnum === ENODATA) resolve();
      else if (errnum) reject(new Error(`${topic}: ${answer ?? `error ${errnum}`}`));
      else onEach(answer);
    }));
  }

  respond(request, payload, errnum = 0) {
    const flags = TOPIC | ROUTE | (payload == null ? 0 : PAYLOAD);
    this.send(encode([
      RESPONSE, flags, USERID_UNKNOWN, 0, errnum, request.matchtag, request.topic,
      request.routes, payload ?? null,
    ]));
  }
}

module.exports = { Flux, ENOSYS, decodeAll, encode };
