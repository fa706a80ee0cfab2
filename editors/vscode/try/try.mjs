// The extension in a real VS Code: code-server shows an example in a headless Chromium, and each
// scene does what somebody would do and looks for it on the screen.
//
//   node try.mjs [--shots FOLDER] [SCENE...]      all scenes (tour, first, writing), or those; leaves pictures in FOLDER
//
// OOMLINT names the linter's command (default: oomlint), CHROMIUM the browser's (default: chromium).

import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import * as first from "./first.mjs";
import { picture } from "./screen.mjs";
import { oomlint, serve } from "./serving.mjs";
import * as tour from "./tour.mjs";
import * as writing from "./writing.mjs";

const SCENES = { tour, first, writing };
const example = resolve(dirname(fileURLToPath(import.meta.url)), "../../../examples/axolotl-no-checkpointing");
const BROWSER_FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];
const PATIENCE = 120_000;

async function main() {
  const wished = process.argv.slice(2).filter((word) => word in SCENES);
  for (const name of wished.length ? wished : Object.keys(SCENES)) {
    console.log(`-- ${name}`);
    await inVsCode(name, SCENES[name]);
  }
}

async function inVsCode(name, scene) {
  const work = mkdtempSync(join(tmpdir(), "oomlint-try-"));
  const [edited, fixed] = ["edited", "fixed"].map((folder) => join(work, folder, basename(example)));
  const given = { work, edited, fixed, example };
  for (const folder of [edited, fixed]) {
    cpSync(example, folder, { recursive: true });
  }
  scene.prepare?.(given);
  const server = await serve(work, scene.settings?.(work) ?? { "oomlint.command": [...oomlint, "lsp"] });
  const browser = await chromium.launchPersistentContext(join(work, "profile"), {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: BROWSER_FLAGS,
    viewport: { width: 1360, height: 860 },
  });
  try {
    const page = browser.pages()[0] ?? (await browser.newPage());
    page.setDefaultTimeout(PATIENCE);
    await page.goto(`${server.url}/?folder=${encodeURIComponent(edited)}`);
    try {
      await scene.play(page, given);
    } catch (error) {
      await picture(page, `failed-${name}.png`);
      throw error;
    }
  } finally {
    await browser.close();
    server.stop();
  }
  rmSync(work, { recursive: true, force: true });
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
