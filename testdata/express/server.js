// Origins on 127.0.0.1 that allow 50 requests per 5 s with express-rate-limit,
// one for each generation of the fields, and that take 20 ms to answer.
//
// Prints the URLs as a line of JSON once they are up. When its standard input
// ends, prints what each accepted and refused, and exits.
"use strict";

const express = require("express");
const { rateLimit } = require("express-rate-limit");

const drafts = ["draft-6", "draft-7", "draft-8"];
const counts = {};

function start(draft) {
  counts[draft] = { accepted: 0, refused: 0 };
  const app = express();
  app.use(
    rateLimit({
      windowMs: 5000,
      limit: 50,
      standardHeaders: draft,
      legacyHeaders: false,
      handler: (req, res) => {
        counts[draft].refused++;
        res.status(429).send("Too many requests");
      },
    }),
  );
  app.get("/", (req, res) => {
    counts[draft].accepted++;
    setTimeout(() => res.send("ok"), 20);
  });
  return new Promise((resolve, reject) => {
    const server = app.listen(0, "127.0.0.1");
    server.on("error", reject);
    server.on("listening", () => resolve(`http://127.0.0.1:${server.address().port}/`));
  });
}

function print(value) {
  process.stdout.write(JSON.stringify(value) + "\n");
}

async function main() {
  const urls = {};
  for (const draft of drafts) {
    urls[draft] = await start(draft);
  }
  print(urls);
  process.stdin.resume();
  process.stdin.on("end", () => {
    print(counts);
    process.exit(0);
  });
}

main();
