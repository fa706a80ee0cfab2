// All that a config shows, and that what the editor saves is what `oomlint --fix` writes.

import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { actions, complete, go, open, pick, picture, run, seen, squiggles, verdict } from "./screen.mjs";
import { oomlint } from "./serving.mjs";

export async function play(page, { edited, fixed, example }) {
  await open(page, "config.yaml");
  await seen("findings", squiggles(page));
  await seen("inlay hints", page.locator(".view-line", { hasText: /≈.*GiB.*\/.*GiB/ }));
  await seen("code lens", page.locator(".codelens-decoration", { hasText: /does not fit .*predicted peak/ }));
  await seen("status bar", verdict(page));
  await page.keyboard.press("Control+Shift+M");
  await seen("problems", page.locator(".markers-panel", { hasText: "no gradient checkpointing" }));
  await picture(page, "vscode-findings.png");

  await choose(page, "RTX-4090-24GB", "8");
  await seen("hardware chosen", verdict(page).filter({ hasText: "/ 23" }));
  await choose(page, "What the files say");
  await seen("hardware of the files", verdict(page).filter({ hasText: "/ 79" }));

  await page.getByText("gradient_accumulation_steps").first().hover();
  await seen("hover", page.locator(".monaco-hover", { hasText: "GiB" }));
  await picture(page, "vscode-hover.png");

  await page.locator(".view-line", { hasText: "sequence_length" }).first().click();
  await page.keyboard.press("Home");
  await seen("quick fixes", await actions(page, "sequence_len"));
  await picture(page, "vscode-quick-fix.png");
  await page.keyboard.press("Escape");

  await go(page, 13, 1);
  await seen("ways as actions", await actions(page, "Way 1"));
  await picture(page, "vscode-way-actions.png");
  await page.keyboard.press("Escape");

  // values ranked by what they cost
  await go(page, 15, 18);
  await seen("values", (await complete(page)).filter({ hasText: "GiB" }));
  await picture(page, "vscode-values.png");
  await page.keyboard.press("Escape");

  await run(page, "oomlint: Show the ways to make the run fit");
  const inside = page.frameLocator("iframe.webview.ready").frameLocator("#active-frame");
  await seen("ways", inside.getByText("Take way 1"));
  await seen("status bar beside a page", verdict(page));
  await picture(page, "vscode-ways.png");
  await page.keyboard.press("Control+W");
  await page.locator(".monaco-editor .view-line").first().click();
  await run(page, "oomlint: Show the predicted memory");
  await seen("the estimate", inside.getByText("optimizer").first());
  await picture(page, "vscode-estimate.png");
  await page.keyboard.press("Control+W");

  await page.locator(".monaco-editor .view-line").first().click();
  await run(page, "Fix All");
  await seen("the fix", page.locator(".view-line", { hasText: /sequence_len:/ }));
  await page.keyboard.press("Control+S");
  await page.locator(".tab.active.dirty").waitFor({ state: "detached" });
  await page.locator(".markers-panel", { hasText: "No problems" }).waitFor();
  await picture(page, "vscode-fixed.png");

  spawnSync(oomlint[0], [...oomlint.slice(1), "--fix", "--quiet", "."], { cwd: fixed });
  const differing = compare(edited, fixed);
  if (differing.length) {
    throw new Error(`the editor saved other bytes than --fix: ${differing.join(", ")}`);
  }
  if (!compare(edited, example).length) {
    throw new Error("nothing was fixed");
  }
  console.log("saved what --fix writes, byte for byte");
}

// Takes a card, and how many of it where that is asked, in the hardware picker.
async function choose(page, card, count) {
  await page.locator(".monaco-editor .view-line").first().click();
  await run(page, "oomlint: Choose the hardware");
  await page.locator(".quick-input-list", { hasText: "This machine" }).waitFor();
  await pick(page, card);
  if (count) {
    await page.locator(".quick-input-widget", { hasText: "GPUs per node" }).waitFor();
    await page.keyboard.type(count);
    await page.keyboard.press("Enter");
  }
}

function compare(one, other) {
  const names = new Set([...readdirSync(one), ...readdirSync(other)].filter((n) => !n.startsWith(".")));
  const bytes = (folder, name) =>
    existsSync(join(folder, name)) ? readFileSync(join(folder, name)) : Buffer.from("absent");
  return [...names].filter((name) => !bytes(one, name).equals(bytes(other, name)));
}
