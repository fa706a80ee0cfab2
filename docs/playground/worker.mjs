// Loads Pyodide and oomlint, and answers. What is asked stays here.

import { shellParser } from "./shell_syntax.mjs";

let python;

const say = (kind, value) => postMessage({ kind, ...value });

async function fetched(url, seen) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  const reader = response.body.getReader();
  const parts = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
    seen(value.length);
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) { whole.set(part, at); at += part.length; }
  return whole;
}

async function start() {
  const built = await fetch("playground.json");
  if (!built.ok) throw new Error("this copy of the page is not built: python docs/playground/build.py FOLDER does that");
  const settings = await built.json();
  const base = new URL(settings.pyodide, self.location.href).href;
  let loaded = 0;
  const seen = (bytes) => say("progress", { text: "Loading", share: (loaded += bytes) / settings.bytes });
  // The large files first, so that the browser has them when Pyodide asks for them again.
  const [wheels] = await Promise.all([
    Promise.all(settings.wheels.map((wheel) => fetched(wheel, seen))),
    ...settings.large.map((file) => fetched(base + file, seen)),
  ]);
  say("progress", { text: "Starting Python", share: 1 });
  const { loadPyodide } = await import(base + "pyodide.mjs");
  python = await loadPyodide({ indexURL: base });
  if (settings.packages.length) await python.loadPackage(settings.packages);
  for (const wheel of wheels) python.unpackArchive(wheel, "wheel");
  await readShell(settings.shell);
  say("progress", { text: "Reading the catalogues", share: 1 });
  python.runPython(await (await fetch("engine.py")).text());
  say("ready", { catalogue: JSON.parse(python.globals.get("catalogue")()) });
}

// Python's binding of tree-sitter has no build for browsers: JavaScript's stands in for it.
async function readShell(files) {
  const at = (name) => new URL(files + name, self.location.href).href;
  const parse = await shellParser(await import(at("web-tree-sitter.js")), at("web-tree-sitter.wasm"), at("tree-sitter-bash.wasm"));
  python.runPython(await (await fetch("shell_syntax.py")).text());
  python.globals.get("install")(parse);
}

const started = start().catch((error) => say("failed", { text: String(error.message || error) }));

onmessage = async ({ data }) => {
  await started;
  if (!python) return;
  const since = performance.now();
  try {
    const answer = python.globals.get("answer")(JSON.stringify(data));
    say("answer", { id: data.id, milliseconds: performance.now() - since, ...JSON.parse(answer) });
  } catch (error) {
    say("answer", { id: data.id, trouble: String(error.message || error) });
  }
};
