"use strict";
// Makes elements. What a trace says reaches the page as text only: through `element` and `drawn`.

const SVG = "http://www.w3.org/2000/svg";

// Controls, format characters (bidirectional ones turn a text around), separators, surrogates.
const UNPRINTABLE = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}]/gu;

function printable(text) {
  return String(text).replace(UNPRINTABLE, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
}

// Returns an HTML element with properties, and children that are elements or text.
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  for (const child of children.flat()) {
    made.append(typeof child === "object" ? child : printable(child));
  }
  return made;
}

// Returns an SVG element with attributes and, if it is given, a text.
function drawn(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  if (text !== undefined) made.textContent = printable(text);
  return made;
}

// Returns JSON text with a line for each item. The text may end anywhere. It is never parsed:
// numbers above 2^53, such as job ids, would change.
function indented(json) {
  const lines = [""];
  let depth = 0;
  for (const [part] of json.matchAll(/"(?:[^"\\]|\\.)*"?|[{}[\],:]|[^"{}[\],:]+/gs)) {
    if (part === "}" || part === "]") {
      depth -= 1;
      if (/[{[]$/.test(lines.at(-1))) lines[lines.length - 1] += part;
      else lines.push("  ".repeat(Math.max(depth, 0)) + part);
      continue;
    }
    if (/[{[,]$/.test(lines.at(-1)) && lines.at(-1) !== "") lines.push("  ".repeat(depth));
    lines[lines.length - 1] += part === ":" ? ": " : part;
    if (part === "{" || part === "[") depth += 1;
  }
  return lines.join("\n");
}
