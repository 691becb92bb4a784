// Compare the readers with test vectors: `node check.mjs maps.json` or `node check.mjs class-maps.json`.
import { readFileSync } from "node:fs";
import { probabilities, probability } from "./map.mjs";

let answers = 0, off = 0;
for (const { map, scores, answers: expected } of JSON.parse(readFileSync(process.argv[2])))
  for (const [i, score] of scores.entries()) {
    const found = map.classes ? probabilities(map, score) : [probability(map, score)];
    for (const [k, wanted] of [expected[i]].flat().entries()) {
      answers += 1;
      off = Math.max(off, Math.abs(found[k] - wanted));
    }
  }
console.log(`${answers} answers, off by at most ${off}`);
