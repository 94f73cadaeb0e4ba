#!/usr/bin/env node
// Counts the words of standard input and writes the ten commonest. Run it with
//   hutch run examples/words.js 10 < README.md
"use strict";
const fs = require("node:fs");

const most = Number(process.argv[2] ?? 10);
const counts = new Map();
for (const word of fs.readFileSync(0, "utf8").toLowerCase().match(/\p{L}[\p{L}'-]*/gu) ?? [])
    counts.set(word, (counts.get(word) ?? 0) + 1);

const rows = [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, most);
for (const [word, count] of rows)
    console.log(`${String(count).padStart(6)}  ${word}`);
fs.writeFileSync("words.json", JSON.stringify(Object.fromEntries(rows), null, 2) + "\n");
