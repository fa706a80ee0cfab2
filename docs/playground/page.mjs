// The page: what is given at the left, what is predicted at the right. All that it knows stands in the
// fragment of its address, which browsers send to nobody.

import { applied, changedLines } from "./edits.mjs";
import { packed, unpacked } from "./fragment.mjs";

const $ = (id) => document.getElementById(id);
const EMPTY_WISH = { model: "", method: "", length: "", batch: "", rank: "", shard: "", framework: "", config: "" };
const NO_MACHINE = { hardware: "", memory: "" };
// What a config runs on is asked apart from what a model would run on: an example brings its own.
let state = { tab: "files", files: [], at: 0, machines: { files: { ...NO_MACHINE }, model: { ...NO_MACHINE } }, wish: { ...EMPTY_WISH } };
const machine = () => state.machines[state.tab];
let asked = 0, answered = {}, isReady = false, marks = new Map();

// -- building -----------------------------------------------------------------------------

function make(tag, given = {}, ...inside) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...inside.flat().filter((each) => each !== null && each !== undefined && each !== ""));
  return node;
}

function gib(bytes) {
  if (bytes === null || bytes === undefined) return "unknown";
  const size = bytes / 2 ** 30;
  if (size < 1) return `${Math.round(bytes / 2 ** 20)} MiB`;
  return `${size >= 100 ? Math.round(size) : size.toFixed(1)} GiB`;
}

const WORDS = { fits: "It fits", tight: "It may not fit", does_not_fit: "It does not fit", unknown: "Not known" };
const PHASES = { load: "loading", forward: "forward", backward: "backward", train: "training", optimizer_step: "optimizer step", evaluation: "evaluation", save: "saving" };
const EACH = { gpu: "per GPU", host: "of RAM a node" };

// -- asking -------------------------------------------------------------------------------

const worker = new Worker("worker.mjs", { type: "module" });
worker.onmessage = ({ data }) => {
  if (data.kind === "progress") progress(data.text, data.share);
  if (data.kind === "failed") { progress(`Python did not start: ${data.text}`, null); $("answer").replaceChildren(make("p", { class: "trouble" }, data.text)); }
  if (data.kind === "ready") ready(data.catalogue);
  if (data.kind === "answer" && data.id === asked) { answered = data; show(); }
};

function progress(text, share) {
  $("status-text").textContent = share !== null && share < 1 ? `${text} ${Math.round(100 * share)} %` : text;
  $("progress").hidden = share === null;
  if (share !== null) $("progress").value = share;
}

function ready(catalogue) {
  isReady = true;
  document.body.dataset.ready = "yes";
  $("cards").replaceChildren(...catalogue.gpus.flatMap((name) => ["", "8x"].map((count) => make("option", { value: count + name }))));
  $("model-names").replaceChildren(...catalogue.models.map((name) => make("option", { value: name })));
  progress("Ready", null);
  ask();
}

function question(what) {
  const { hardware, memory } = machine();
  const wish = { ...state.wish };
  for (const name of ["length", "batch", "rank"]) wish[name] = wish[name] ? Number(wish[name]) : null;
  for (const name of Object.keys(wish)) if (wish[name] === "") wish[name] = null;
  if (what === "new") wish.framework ??= "trl";
  const files = Object.fromEntries(state.files.map(({ name, text }) => [name, text]));
  return { id: ++asked, what, files, wish, hardware, memory };
}

function ask(what = state.tab === "files" ? "check" : "model") {
  if (!isReady) return;
  if (what === "check" && !state.files.some(({ text }) => text.trim())) return say("Paste a config, open files, or load an example.");
  if (what !== "check" && !state.wish.model.trim()) return say("Name a model: an id of Hugging Face, such as meta-llama/Llama-3.1-8B.");
  const sent = question(what);
  if (what === "model" && sent.wish.config && !sent.wish.model) sent.wish.model = "model";
  progress("Thinking", null);
  $("answer").setAttribute("aria-busy", "true");
  worker.postMessage(sent);
}

let waiting;
function changed() {
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    history.replaceState(null, "", "#" + (await packed(state)));
    ask();
  }, 350);
}

// -- showing ------------------------------------------------------------------------------

function say(text) { progress("Ready", null); $("answer").removeAttribute("aria-busy"); marks = new Map(); number(); $("answer").replaceChildren(make("p", { class: "quiet" }, text)); }

function show() {
  progress(answered.milliseconds ? `Answered in ${(answered.milliseconds / 1000).toFixed(1)} s` : "Ready", null);
  marks = new Map();
  $("answer").removeAttribute("aria-busy");
  if (answered.trouble) $("answer").replaceChildren(make("p", { class: "trouble" }, answered.trouble));
  else if (answered.found.text !== undefined) return take(answered.found);
  else if (answered.found.findings) showReport(answered.found);
  else showModel(answered.found);
  number();
}

function showReport(report) {
  for (const finding of report.findings) mark(finding.path, finding.range.start.line, finding.severity);
  // What follows from another finding is said with its causes above.
  const others = report.findings.filter((each) => (each.severity !== "info" && !each.follows) || !report.runs.length);
  const notes = report.findings.filter((each) => !others.includes(each));
  $("answer").replaceChildren(
    ...report.runs.map((run) => runCard(run, report.findings)),
    report.runs.length ? "" : make("p", { class: "quiet" }, "No training run was recognised in these files. A launch line is read with the script or config that it names: add it beside."),
    ...listed("What is found", others.map(findingItem)),
    ...listed("Files that could not be read", report.errors.map((error) => make("li", { class: "error" }, `${error.path}: ${error.message}`))),
    notes.length ? make("details", {}, make("summary", {}, `${notes.length} more to know`), make("ul", { class: "plain" }, notes.map(findingItem))) : "",
  );
}

function listed(title, items) {
  return items.length ? [make("h3", {}, title), make("ul", { class: "plain" }, items)] : [];
}

function runCard(run, findings = [], isModel = false) {
  const charts = devices(run).map((each, i) => (i === 0 || each.isAtRisk ? chart(each) : folded(each)));
  return make("article", { class: "run" }, verdict(run), charts, causes(run), way(run, findings), assumed(run, isModel));
}

// GPU and host as their run is read, the one that is more at risk first.
function devices(run) {
  const said = run.as_meant ?? run, { hardware } = run;
  const limits = { gpu: hardware?.usable_gpu_bytes ?? 0, host: hardware?.host_bytes_per_node ?? 0 };
  const found = ["gpu", "host"].map((name) => ({ name, limit: limits[name], risk: said.risk?.[name] ?? 0, ...said[name] }));
  found.sort((one, other) => other.risk - one.risk);
  return found.map((each) => ({ ...each, isAtRisk: each.limit > 0 && (each.risk ?? 0) >= RISKY }));
}

function need({ name, peak_bytes: peak, limit }) {
  return `${limit ? `${gib(peak)} of ${gib(limit)}` : gib(peak)} ${EACH[name]}`;
}

function verdict(run) {
  const said = run.as_meant ?? run;
  const [first, second] = devices(run);
  const risk = said.risk ? `, risk ${Math.round(100 * said.risk.any)} %` : "";
  const where = run.hardware ? ` on ${run.hardware.name}` : "";
  // A host has no bounds of its own for runs that nobody has looked at.
  const { first_sight_low_bytes: low = first.low_bytes, first_sight_high_bytes: high = first.high_bytes } = first;
  const when = first.name === "host" && first.peak_phase ? ` while ${PHASES[first.peak_phase] ?? first.peak_phase}` : "";
  return make("div", { class: `verdict ${said.verdict}` },
    make("h2", {}, run.name, run.framework ? make("span", { class: "quiet" }, ` ${run.framework}`) : ""),
    make("p", {}, make("span", { class: "word" }, run.hardware ? WORDS[said.verdict] : "No hardware named"), where + risk),
    said.gpu.peak_bytes === null ? make("p", {}, "Too little is known of the model for a number.")
      : make("p", {}, `needs ${need(first)}${when} (between ${gib(low)} and ${gib(high)})`,
        second.peak_bytes ? `, ${need(second)}` : ""),
    run.as_meant ? make("p", { class: "quiet" }, `as meant: ${run.as_meant.because.join(", ")}`) : "");
}

function folded(device) {
  if (!device.peak_bytes) return "";
  return make("details", {}, make("summary", {}, device.name === "host" ? "the RAM of a node" : "the memory of a GPU"), chart(device));
}

function chart(device) {
  const { limit } = device;
  const known = Object.entries(device.phases).filter(([, size]) => size !== null);
  if (!known.length) return "";
  const top = Math.max(limit, ...known.map(([, size]) => size)) || 1;
  const rows = known.map(([phase, size]) => {
    const isPeak = phase === device.peak_phase;
    const bar = make("i", { class: limit && size > limit ? "over" : "", style: `width:${(100 * size) / top}%` });
    const track = make("div", { class: "track", title: parts(device.phase_components?.[phase]) }, bar, limit ? make("b", { style: `left:calc(${(100 * limit) / top}% - 1px)` }) : "");
    return make("div", { class: isPeak ? "bar peak" : "bar" }, make("span", {}, PHASES[phase] ?? phase), track, make("span", { class: "size" }, gib(size)));
  });
  const table = make("table", {}, Object.entries(device.components).filter(([, size]) => size > 0).sort(([, a], [, b]) => b - a)
    .map(([name, size]) => make("tr", {}, make("td", {}, name.replaceAll("_", " ")), make("td", { class: "size" }, gib(size)))));
  const usable = device.name === "gpu" ? "usable per GPU" : "of RAM a node";
  return make("div", {}, make("div", { class: "chart", role: "img", "aria-label": known.map(([phase, size]) => `${PHASES[phase] ?? phase} ${gib(size)}`).join(", ") }, rows),
    limit ? make("p", { class: "quiet" }, `the line is the limit: ${gib(limit)} ${usable}`) : "",
    make("details", {}, make("summary", {}, "what the peak is made of"), table));
}

// From here on a run may not fit (``tight`` in oomlint.judgement.severity).
const RISKY = 0.2;

const parts = (sizes) => Object.entries(sizes ?? {}).filter(([, size]) => size > 0).map(([name, size]) => `${name.replaceAll("_", " ")} ${gib(size)}`).join("\n");

function causes(run) {
  const items = run.causes.map((cause) => {
    mark(cause.path, cause.line, "error");
    return make("li", {}, make("span", { class: "size-tag" }, gib(cause.bytes)), `${cause.component.replaceAll("_", " ")} `, at(cause.path, cause.line), cause.remedy ? make("div", { class: "quiet" }, `lowered by: ${cause.remedy}`) : "");
  });
  return make("div", {}, listed("Why", items));
}

function at(path, line) {
  if (!path || !line || !state.files.some((file) => file.name === path)) return "";
  return make("button", { class: "at", onclick: () => go(path, line), title: "Go to that line" }, `${path}:${line}`);
}

function way(run, findings) {
  const said = run.as_meant ?? run;
  if (!run.way) return ["tight", "does_not_fit"].includes(said.verdict) ? help(run, findings) : "";
  const { title, edits, applicability } = run.way;
  const label = applicability === "unsafe" ? "Apply, though it changes what is trained or saved" : "Apply";
  const [first] = devices(run);
  const after = first.name === "host" ? run.way.host_bytes : run.way.gpu_bytes;
  return make("div", {}, make("h3", {}, "The way out"),
    make("p", {}, title, after ? make("span", { class: "quiet" }, `: then ${gib(after)} ${EACH[first.name]}`) : ""),
    diff(edits), make("div", { class: "row" }, make("button", { class: "apply", onclick: () => apply(edits) }, label)));
}

// Where no change is known to be due and to be enough, what lowers the need all the same.
function help(run, findings) {
  const [first] = devices(run);
  const able = findings.filter((each) => each.run === run.name && each.resource === first.name && each.severity !== "info" && each.fix);
  const found = able.find((each) => each.name === `${first.name}-memory-at-risk`) ?? able[0];
  if (!found) return make("div", {}, make("h3", {}, "The way out"), make("p", {}, "No change of these files is known that makes it fit."));
  const { title, predicted_bytes_after: after } = found.fix;
  return make("div", {}, make("h3", {}, "What would help"),
    make("p", {}, title, after ? make("span", { class: "quiet" }, `: then ${gib(after)} ${EACH[first.name]}`) : ""));
}

function diff(edits) {
  const before = texts(), after = applied(before, edits);
  const lines = changedLines(before, after).map(({ kind, text }) => make("span", { class: kind }, text || " "));
  return make("pre", { class: "diff" }, lines);
}

function findingItem(finding) {
  const { severity, message, details, path, range, fix, name, url } = finding;
  return make("li", {},
    make("span", { class: severity }, `${severity} `), `${message} `, at(path, range.start.line),
    details.map((each) => make("div", { class: "quiet" }, each)),
    make("div", { class: "quiet" }, make("a", { href: `../rules/${name}.html` }, name)),
    fix && fix.edits.length ? make("details", {}, make("summary", {}, fix.title), diff(fix.edits), make("button", { onclick: () => apply(fix.edits) }, "Apply this")) : "");
}

function assumed(run, isOpen = false) {
  if (!run.assumptions.length) return "";
  return make("details", { open: isOpen }, make("summary", {}, "What is assumed"), make("ul", { class: "plain" },
    run.assumptions.map(({ field, value, why }) => make("li", {}, `${field} = ${value}: ${why}`))));
}

function showModel(answer) {
  const [run] = answer.runs;
  const cards = answer.cards.map((card) => make("tr", {}, make("td", {}, make("button", { class: "at", title: "Take this hardware", onclick: () => setHardware(card.hardware) }, card.hardware)),
    make("td", { class: "size" }, `${gib(card.gpu_bytes)} of ${gib(card.usable_gpu_bytes)}`), make("td", {}, card.shard === "none" ? "" : card.shard)));
  const levers = answer.lowers.map((lever) => make("li", {}, make("span", { class: "size-tag" }, `−${gib(lever.saving_bytes)}`), lever.title, lever.gives_up ? make("div", { class: "quiet" }, `but ${lever.gives_up}`) : ""));
  $("answer").replaceChildren(answered.note ? make("p", { class: "trouble" }, answered.note) : "", runCard(run, [], true),
    make("h3", {}, "Smallest common cards that hold it"), cards.length ? make("table", {}, cards.slice(0, 8)) : make("p", {}, "none, nor up to 16 nodes of 8"),
    ...listed("What lowers it most, each alone", levers));
}

// -- doing --------------------------------------------------------------------------------

const texts = () => new Map(state.files.map(({ name, text }) => [name, text]));

function apply(edits) {
  for (const [name, text] of applied(texts(), edits)) {
    const file = state.files.find((each) => each.name === name);
    if (file) file.text = text; else state.files.push({ name, text });
  }
  open(state.at);
  changed();
}

function take(config) {
  // An example that nobody touched is in the way of what somebody asked for.
  if (examples.some(({ files }) => JSON.stringify(files) === JSON.stringify(state.files))) state.files = [];
  const file = state.files.find((each) => each.name === config.file);
  if (file) file.text = config.text; else state.files.push({ name: config.file, text: config.text });
  state.files = state.files.filter((each) => each.text.trim());
  state.at = state.files.findIndex((each) => each.name === config.file);
  state.machines.files = { ...state.machines.model };
  choose("files");
}

function setHardware(name) { machine().hardware = name; input("machine", "hardware").value = name; changed(); }

function mark(path, line, severity) {
  if (line && severity !== "info") marks.set(`${path}:${line}`, severity);
}

function go(path, line) {
  open(state.files.findIndex((file) => file.name === path));
  const area = $("text"), lines = area.value.split("\n");
  const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + lines[line - 1].length);
  area.scrollTop = (line - 4) * parseFloat(getComputedStyle(area).lineHeight);
  area.scrollIntoView({ block: "nearest" });
}

function number() {
  const file = state.files[state.at];
  const count = (file?.text.split("\n").length ?? 1);
  $("lines").replaceChildren(...Array.from({ length: count }, (_, i) => {
    const isMarked = marks.has(`${file?.name}:${i + 1}`);
    return make("span", { class: isMarked ? "marked" : "" }, String(i + 1));
  }));
  $("lines").scrollTop = $("text").scrollTop;
}

// -- files --------------------------------------------------------------------------------

function open(index) {
  if (!state.files.length) state.files.push({ name: "config.yaml", text: "" });
  state.at = Math.max(0, Math.min(index, state.files.length - 1));
  $("text").value = state.files[state.at].text;
  $("file-tabs").replaceChildren(...state.files.map((file, i) => make("button", { role: "tab", "aria-selected": String(i === state.at), onclick: () => open(i) }, file.name)));
  number();
}

function choose(tab) {
  state.tab = tab;
  for (const name of ["files", "model"]) {
    $(name).hidden = name !== tab;
    $(`tab-${name}`).setAttribute("aria-selected", String(name === tab));
  }
  for (const name of Object.keys(NO_MACHINE)) input("machine", name).value = machine()[name];
  open(state.at);
  changed();
}

async function add(list) {
  for (const file of list) {
    const text = await file.text();
    const known = state.files.find((each) => each.name === file.name);
    if (known) known.text = text; else state.files.push({ name: file.name, text });
  }
  state.files = state.files.filter((each) => each.text.trim());
  open(state.files.length - 1);
  changed();
}

// By attribute: `elements` of a form has a length of its own.
const input = (form, name) => $(form).querySelector(`[name="${name}"]`);

function fill() {
  for (const name of Object.keys(NO_MACHINE)) input("machine", name).value = machine()[name];
  for (const name of Object.keys(EMPTY_WISH)) input("wish", name).value = state.wish[name] ?? "";
}

$("text").addEventListener("input", () => { state.files[state.at].text = $("text").value; marks = new Map(); number(); changed(); });
$("text").addEventListener("scroll", () => { $("lines").scrollTop = $("text").scrollTop; });
$("add-file").onclick = () => { const name = prompt("Name of the file", "ds_config.json"); if (name) { state.files.push({ name, text: "" }); open(state.files.length - 1); } };
$("rename").onclick = () => { const file = state.files[state.at], name = prompt("Name of the file", file.name); if (name) { file.name = name; open(state.at); changed(); } };
$("remove").onclick = () => { state.files.splice(state.at, 1); open(state.at - 1); changed(); };
async function copy(button, text) {
  const label = button.textContent;
  await navigator.clipboard.writeText(text);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = label; }, 1500);
}
$("copy").onclick = () => copy($("copy"), state.files[state.at].text);
$("copy-link").onclick = async () => copy($("copy-link"), `${location.href.split("#")[0]}#${await packed(state)}`);
$("open-files").onchange = (event) => add(event.target.files);
$("editor").addEventListener("dragover", (event) => { event.preventDefault(); $("editor").classList.add("over"); });
$("editor").addEventListener("dragleave", () => $("editor").classList.remove("over"));
$("editor").addEventListener("drop", (event) => { event.preventDefault(); $("editor").classList.remove("over"); add(event.dataTransfer.files); });
$("machine").oninput = () => { for (const name of ["hardware", "memory"]) machine()[name] = input("machine", name).value.trim(); changed(); };
$("machine").onsubmit = $("wish").onsubmit = (event) => event.preventDefault();
$("wish").oninput = () => { for (const name of Object.keys(EMPTY_WISH)) state.wish[name] = input("wish", name).value.trim(); changed(); };
$("tab-files").onclick = () => choose("files");
$("tab-model").onclick = () => choose("model");
$("write").onclick = () => {
  if (!machine().hardware) { $("write-note").textContent = "name the hardware that it has to fit"; input("machine", "hardware").focus(); return; }
  clearTimeout(waiting);  // what it waits to ask would be answered last
  ask("new");
};

const built = await fetch("examples.json");
const examples = built.ok ? await built.json() : [];
$("examples").append(...examples.map((example, i) => make("option", { value: i }, example.name)));
function load({ files, hardware, memory }) { Object.assign(state, { tab: "files", files: structuredClone(files), at: 0 }); state.machines.files = { hardware, memory }; fill(); choose("files"); }
$("examples").onchange = (event) => { if (event.target.value !== "") load(examples[event.target.value]); event.target.value = ""; };

async function restore() {
  const held = await unpacked(location.hash.slice(1));
  if (held) { Object.assign(state, held, { wish: { ...EMPTY_WISH, ...held.wish }, machines: { ...state.machines, ...held.machines } }); fill(); choose(state.tab); }
  else if (examples.length) load(examples[0]);
  else choose("files");
}
addEventListener("hashchange", restore);
await restore();
