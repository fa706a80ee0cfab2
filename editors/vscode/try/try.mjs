// The extension in a real VS Code: code-server shows an example in a headless Chromium, every part
// of the extension is looked for on the screen, all is fixed and saved, and the bytes on disk are
// compared with those that `oomlint --fix` writes.
//
//   node try.mjs [--shots FOLDER]       leaves pictures in FOLDER
//   node try.mjs --missing              instead: what VS Code says where oomlint is not installed
//
// OOMLINT names the linter's command (default: oomlint), CHROMIUM the browser's (default: chromium).

import { spawn, execFileSync, spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
const example = resolve(here, "../../../examples/axolotl-no-checkpointing");
const vsix = resolve(here, "../oomlint.vsix");
const codeServer = join(here, "node_modules/code-server/out/node/entry.js");
// code-server starts further processes with the Node.js that runs it, which must be the one it asks for.
const node = join(here, "node_modules/node/bin/node");
const oomlint = findCommand((process.env.OOMLINT ?? "oomlint").split(" "));

const BROWSER_FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];
const PATIENCE = 60_000;

const flag = process.argv.indexOf("--shots");
const isMissing = process.argv.includes("--missing");
const shots = flag > 0 ? resolve(process.argv[flag + 1]) : undefined;

async function main() {
  const work = mkdtempSync(join(tmpdir(), "oomlint-try-"));
  const [edited, fixed] = ["edited", "fixed"].map((name) => join(work, name, basename(example)));
  for (const folder of [edited, fixed]) {
    cpSync(example, folder, { recursive: true });
  }
  const url = await serve(work);
  const browser = await chromium.launchPersistentContext(join(work, "profile"), {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: BROWSER_FLAGS,
    viewport: { width: 1360, height: 860 },
  });
  try {
    const page = browser.pages()[0] ?? (await browser.newPage());
    page.setDefaultTimeout(PATIENCE);
    await page.goto(`${url}/?folder=${encodeURIComponent(edited)}`);
    try {
      await (isMissing ? firstMinute(page) : tour(page));
    } catch (error) {
      await picture(page, "failed.png");
      throw error;
    }
  } finally {
    await browser.close();
  }
  if (isMissing) {
    rmSync(work, { recursive: true, force: true });
    return;
  }
  spawnSync(oomlint[0], [...oomlint.slice(1), "--fix", "--quiet", "."], { cwd: fixed });
  const differing = compare(edited, fixed);
  if (differing.length) {
    throw new Error(`the editor saved other bytes than --fix: ${differing.join(", ")}`);
  }
  if (!compare(edited, example).length) {
    throw new Error("nothing was fixed");
  }
  console.log("saved what --fix writes, byte for byte");
  rmSync(work, { recursive: true, force: true });
}

async function tour(page) {
  await open(page, "config.yaml");
  await seen("findings", page.locator(".squiggly-warning, .squiggly-error").first());
  await seen("inlay hints", page.locator(".view-line", { hasText: /≈.*GiB.*\/.*GiB/ }).first());
  await seen("code lens", page.locator(".codelens-decoration", { hasText: "predicted peak" }).first());
  const status = page.locator(".statusbar-item", { hasText: "GiB" });
  await seen("status bar", status.first());
  await page.keyboard.press("Control+Shift+M");
  await seen("problems", page.locator(".markers-panel", { hasText: "no gradient checkpointing" }));
  await picture(page, "vscode-findings.png");

  await choose(page, "RTX-4090-24GB", "8");
  await seen("hardware chosen", status.filter({ hasText: "/ 23" }));
  await choose(page, "What the files say");
  await seen("hardware of the files", status.filter({ hasText: "/ 79" }));

  await page.getByText("micro_batch_size").first().hover();
  await seen("hover", page.locator(".monaco-hover", { hasText: "GiB" }).first());
  await picture(page, "vscode-hover.png");

  await page.locator(".view-line", { hasText: "sequence_length" }).first().click();
  await page.keyboard.press("Home");
  await page.keyboard.press("Control+.");
  await seen("quick fixes", page.locator(".action-widget", { hasText: "sequence_len" }));
  await picture(page, "vscode-quick-fix.png");
  await page.keyboard.press("Escape");

  // values ranked by what they cost
  await run(page, "Go to Line/Column...");
  await page.keyboard.type("15:18");
  await page.keyboard.press("Enter");
  await page.keyboard.press("F1");
  await page.keyboard.type("Trigger Suggest");
  await page.locator(".quick-input-list .monaco-list-row", { hasText: /^Trigger Suggest/ }).click();
  await seen("values", page.locator(".suggest-widget", { hasText: "GiB" }));
  await picture(page, "vscode-values.png");
  await page.keyboard.press("Escape");

  await run(page, "oomlint: Show the ways to make the run fit");
  const inside = page.frameLocator("iframe.webview.ready").frameLocator("#active-frame");
  await seen("ways", inside.getByText("Take way 1").first());
  await seen("status bar beside a page", status.first());
  await picture(page, "vscode-ways.png");
  await page.keyboard.press("Control+W");

  await run(page, "Fix All");
  await seen("the fix", page.locator(".view-line", { hasText: /sequence_len:/ }).first());
  await page.keyboard.press("Control+S");
  await page.locator(".tab.active.dirty").waitFor({ state: "detached" });
  await page.locator(".markers-panel", { hasText: "No problems" }).waitFor();
  await picture(page, "vscode-fixed.png");
}

// Nothing to start: one message, in words, that offers what can be done; the status bar keeps it, also
// after another try.
async function firstMinute(page) {
  await open(page, "config.yaml");
  const message = page.locator(".notification-toast", { hasText: "oomlint is not installed" });
  await seen("a message", message.first());
  await seen("status bar", page.locator(".statusbar-item", { hasText: "oomlint" }).first());
  await picture(page, "vscode-missing.png");
  await run(page, "oomlint: Restart the language server");
  await page.waitForTimeout(5000);
  const count = await page.locator(".notification-toast").count();
  if (count > 1) {
    throw new Error(`${count} messages about one trouble`);
  }
  console.log("one message");
}

async function open(page, name) {
  await page.locator(".monaco-workbench").waitFor();
  await page.locator(".explorer-folders-view", { hasText: name }).waitFor();
  await page.locator(".explorer-folders-view .monaco-list-row", { hasText: name }).first().dblclick();
  await page.locator(".monaco-editor .view-line").first().waitFor();
}

// Runs a command of the palette.
async function run(page, command) {
  await page.locator(".monaco-editor .view-line").first().click();
  await page.keyboard.press("F1");
  await pick(page, command);
}

async function pick(page, label) {
  await page.locator(".quick-input-widget input").first().waitFor();
  await page.keyboard.type(label);
  await page.locator(".quick-input-list .monaco-list-row.focused", { hasText: label }).waitFor();
  await page.keyboard.press("Enter");
}

// Takes a card, and how many of it where that is asked, in the hardware picker.
async function choose(page, card, count) {
  await run(page, "oomlint: Choose the hardware");
  await page.locator(".quick-input-list", { hasText: "This machine" }).waitFor();
  await pick(page, card);
  if (count) {
    await page.locator(".quick-input-widget", { hasText: "GPUs per node" }).waitFor();
    await page.keyboard.type(count);
    await page.keyboard.press("Enter");
  }
}

async function seen(what, place) {
  await place.waitFor({ state: "visible" });
  console.log(`seen: ${what}`);
}

async function picture(page, name) {
  if (shots) {
    mkdirSync(shots, { recursive: true });
    await page.waitForTimeout(1500); // what was loading is drawn, notices have gone
    await page.screenshot({ path: join(shots, name) });
  }
}

// A code-server with only this extension, its settings, and nothing of the user's.
async function serve(work) {
  const data = join(work, "data");
  const extensions = join(work, "extensions");
  const settings = {
    "oomlint.command": isMissing ? ["/nowhere/oomlint", "lsp"] : [...oomlint, "lsp"],
    "security.workspace.trust.enabled": false,
    "workbench.startupEditor": "none",
    "workbench.colorTheme": "Default Light Modern",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "chat.disableAIFeatures": true,
    "telemetry.telemetryLevel": "off",
    "editor.fontSize": 13,
    "editor.minimap.enabled": false,
  };
  for (const place of ["User", "Machine"]) {
    mkdirSync(join(data, place), { recursive: true });
    writeFileSync(join(data, place, "settings.json"), JSON.stringify(settings));
  }
  const common = [
    codeServer, "--config", join(work, "config.yaml"),
    "--user-data-dir", data, "--extensions-dir", extensions,
  ];
  execFileSync(node, [...common, "--install-extension", vsix], { stdio: "pipe" });
  const port = await freePort();
  const server = spawn(
    node,
    [
      ...common, "--auth", "none", "--bind-addr", `127.0.0.1:${port}`, "--disable-telemetry",
      "--disable-update-check", "--disable-workspace-trust", "--disable-getting-started-override",
    ],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  process.on("exit", () => server.kill());
  const log = [];
  server.stdout.on("data", (text) => log.push(text));
  server.stderr.on("data", (text) => log.push(text));
  const url = `http://127.0.0.1:${port}`;
  for (let tries = 0; tries < 240; tries++) {
    if (server.exitCode !== null) {
      break;
    }
    const answer = await fetch(`${url}/healthz`).catch(() => undefined);
    if (answer?.ok) {
      return url;
    }
    await new Promise((done) => setTimeout(done, 250));
  }
  throw new Error(`code-server does not start:\n${log.join("").slice(-4000)}`);
}

// The search path of VS Code's extensions is that of a login shell, not ours.
function findCommand([program, ...args]) {
  return [execFileSync("sh", ["-c", 'command -v "$1"', "sh", program]).toString().trim(), ...args];
}

function freePort() {
  return new Promise((done) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}

function compare(one, other) {
  const names = new Set([...readdirSync(one), ...readdirSync(other)].filter((n) => !n.startsWith(".")));
  const bytes = (folder, name) =>
    existsSync(join(folder, name)) ? readFileSync(join(folder, name)) : Buffer.from("absent");
  return [...names].filter((name) => !bytes(one, name).equals(bytes(other, name)));
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
