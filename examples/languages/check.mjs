// Compare the reader with the test vectors: `node check.mjs maps.json`.
import { readFileSync } from "node:fs";
import { probability } from "./map.mjs";

let answers = 0, off = 0;
for (const { map, scores, answers: expected } of JSON.parse(readFileSync(process.argv[2])))
  for (const [i, score] of scores.entries()) {
    answers += 1;
    off = Math.max(off, Math.abs(probability(map, score) - expected[i]));
  }
console.log(`${answers} answers, off by at most ${off}`);
